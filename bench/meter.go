package main

import (
	"math"
	"runtime"
	"slices"
	"syscall"
	"time"
)

// operation is one operation to measure, on all sides.
type operation struct {
	name  string
	ours  side
	peers []peer
	close func() // may be nil
	// least is how often a turn does the operation at least: of a stream, whose beginning is to
	// count little. 0 means 1.
	least int
	// alone measures an operation that cannot be repeated n times, in place of ours and peers.
	alone func(m meter) []Result
}

// side does an operation n times.
type side struct {
	do func(n int)
	// prepare is called before do, and not measured; it may be nil.
	prepare func(n int)
	least   int
}

type peer struct {
	name    string
	do      func(n int)
	prepare func(n int) // as that of a side
	close   func()      // may be nil
}

func (p peer) end() {
	if p.close != nil {
		p.close()
	}
}

func (op operation) end() {
	for _, p := range op.peers {
		p.end()
	}
	if op.close != nil {
		op.close()
	}
}

// meter measures ours and every peer's in turns, so that other load of the machine affects all of
// them.
type meter struct {
	round  time.Duration
	rounds int
}

// turns has the nanoseconds of one operation in each turn of a side.
type turns struct{ elapsed, cpu []float64 }

func (m meter) measure(op operation, s shape) []Result {
	if op.alone != nil {
		return op.alone(m)
	}
	op.ours.least = op.least
	sides := []side{op.ours}
	for _, p := range op.peers {
		sides = append(sides, side{do: p.do, prepare: p.prepare, least: op.least})
	}
	times := m.sideBySide(sides)
	ours := Result{
		Operation: op.name, Shape: s.name, Columns: s.columns,
		NS: median(times[0].elapsed), CPU: median(times[0].cpu), Allocs: op.ours.allocations(), turns: times[0],
	}
	if len(op.peers) == 0 {
		return []Result{ours}
	}
	var out []Result
	for i, p := range op.peers {
		r := ours
		r.Peer, r.PeerNS, r.PeerCPU = p.name, median(times[i+1].elapsed), median(times[i+1].cpu)
		r.Ratio, r.peerTurns = median(divided(times[i+1].elapsed, times[0].elapsed)), times[i+1]
		r.CPURatio = median(divided(times[i+1].cpu, times[0].cpu))
		out = append(out, r)
	}
	return out
}

// sideBySide returns the turns of each side.
func (m meter) sideBySide(sides []side) []turns {
	counts := make([]int, len(sides))
	times := make([]turns, len(sides))
	for i, side := range sides {
		counts[i] = m.calibrate(side)
	}
	for range m.rounds {
		for i, side := range sides {
			elapsed, cpu := side.turn(counts[i])
			times[i].elapsed = append(times[i].elapsed, elapsed/float64(counts[i]))
			times[i].cpu = append(times[i].cpu, cpu/float64(counts[i]))
		}
	}
	return times
}

// turn returns the nanoseconds, and those of the processors.
func (s side) turn(n int) (elapsed, cpu float64) {
	if s.prepare != nil {
		s.prepare(n)
	}
	before, start := cpuTime(), time.Now()
	s.do(n)
	took := time.Since(start)
	return float64(took.Nanoseconds()), float64((cpuTime() - before).Nanoseconds())
}

func divided(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range out {
		out[i] = a[i] / b[i]
	}
	return out
}

// calibrate returns how often a side fits into one round. The shorter of two turns counts: other load of the machine
// may interrupt one, and a side that then does a few operations a turn is measured with what a turn costs.
func (m meter) calibrate(s side) int {
	for n := max(1, s.least); ; n *= 2 {
		if elapsed, _ := s.turn(n); elapsed < float64(m.round)/2 {
			continue
		}
		if elapsed, _ := s.turn(n); elapsed >= float64(m.round)/2 {
			return max(1, s.least, int(float64(n)*float64(m.round)/elapsed))
		}
	}
}

// counted is the number of operations over which allocations are counted. It does not depend on
// time: with the few operations that fit into a round on a busy machine, one-time allocations and
// those of other goroutines would distort the average.
const counted = 1000

// countedFor limits the count of slow operations.
const countedFor = 50 * time.Millisecond

// allocations returns how many one operation makes.
func (s side) allocations() float64 {
	if elapsed, _ := s.turn(1); elapsed > float64(countedFor)/counted {
		return s.allocationsOf(max(20, s.least, int(float64(countedFor)/elapsed))) // large batches outweigh what happens once
	}
	return s.allocationsOf(counted)
}

// allocationsOf counts the allocations of n operations: the least of three counts, since the runtime and other goroutines
// allocate meanwhile.
func (s side) allocationsOf(n int) float64 {
	least := math.Inf(1)
	for range 3 {
		if s.prepare != nil {
			s.prepare(n)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		s.do(n)
		runtime.ReadMemStats(&after)
		least = min(least, float64(after.Mallocs-before.Mallocs)/float64(n))
	}
	return least
}

// cpuTime is what this process used on all processors, in the kernel as well.
func cpuTime() time.Duration {
	var u syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
