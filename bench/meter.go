package main

import (
	"runtime"
	"slices"
	"time"
)

// operation is one thing to measure, and who else does it. Each function does it
// n times.
type operation struct {
	name  string
	ours  func(n int)
	peers []peer
	close func()
}

type peer struct {
	name string
	do   func(n int)
}

// meter measures in turns, ours and every peer's, so that what the machine does
// besides hits all of them.
type meter struct {
	round  time.Duration
	rounds int
}

func (m meter) compare(op operation, s shape) []Result {
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
	allocs := allocations(op.ours, counts[0])
	if op.close != nil {
		op.close()
	}
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

func allocations(do func(int), n int) float64 {
	n = min(n, 1000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do(n)
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs-before.Mallocs) / float64(n)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}
