package main

import (
	"math"
	"runtime"
	"slices"
	"time"
)

// operation is one operation to measure, with the functions of its peers. Each function does it n
// times.
type operation struct {
	name  string
	ours  func(n int)
	peers []peer
	close func() // may be nil
	// alone measures an operation that cannot be repeated n times, in place of ours and peers.
	alone func(m meter) []Result
}

type peer struct {
	name string
	do   func(n int)
}

// meter measures ours and every peer's in turns, so that other load of the machine affects all of
// them.
type meter struct {
	round  time.Duration
	rounds int
}

func (m meter) measure(op operation, s shape) []Result {
	if op.alone != nil {
		return op.alone(m)
	}
	sides := []func(int){op.ours}
	for _, p := range op.peers {
		sides = append(sides, p.do)
	}
	counts := make([]int, len(sides))
	times := make([][]float64, len(sides))
	for i, side := range sides {
		counts[i] = m.calibrate(side)
	}
	for range m.rounds {
		for i, side := range sides {
			start := time.Now()
			side(counts[i])
			times[i] = append(times[i], float64(time.Since(start).Nanoseconds())/float64(counts[i]))
		}
	}
	allocs := allocations(op.ours)
	var out []Result
	for i, p := range op.peers {
		ratios := make([]float64, m.rounds)
		for k := range ratios {
			ratios[k] = times[i+1][k] / times[0][k]
		}
		out = append(out, Result{
			Operation: op.name, Shape: s.name, Columns: s.columns,
			NS: median(times[0]), Allocs: allocs,
			Peer: p.name, PeerNS: median(times[i+1]), Ratio: median(ratios),
		})
	}
	return out
}

// calibrate returns how often a side fits into one round.
func (m meter) calibrate(side func(int)) int {
	for n := 1; ; n *= 2 {
		start := time.Now()
		side(n)
		if took := time.Since(start); took >= m.round/2 {
			return max(1, int(float64(n)*float64(m.round)/float64(took)))
		}
	}
}

// counted is the number of operations over which allocations are counted. It does not depend on
// time: with the few operations that fit into a round on a busy machine, one-time allocations and
// those of other goroutines would distort the average.
const counted = 1000

// allocations returns how many one operation makes: the least of three counts, since the
// runtime and other goroutines allocate meanwhile.
func allocations(do func(int)) float64 {
	least := math.Inf(1)
	for range 3 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		do(counted)
		runtime.ReadMemStats(&after)
		least = min(least, float64(after.Mallocs-before.Mallocs)/counted)
	}
	return least
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
