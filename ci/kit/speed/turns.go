package main

import (
	"slices"
	"time"
)

// times are the nanoseconds of one operation in each turn.
type times []float64

func (t times) median() float64 { return median(t) }

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

func divided(a, b []float64) []float64 {
	ratios := make([]float64, len(a))
	for i := range a {
		ratios[i] = a[i] / b[i]
	}
	return ratios
}

const leastTurns, mostTurns = 5, 2000

// inTurns does each operation once a turn, after two turns that fill caches, as long as the span lasts.
func (b *bench) inTurns(operations ...func()) []times {
	all := make([]times, len(operations))
	start := time.Now()
	for turn := 0; turn < 2+leastTurns || time.Since(start) < b.span && turn < mostTurns; turn++ {
		for i, operation := range operations {
			began := time.Now()
			operation()
			if turn >= 2 {
				all[i] = append(all[i], float64(time.Since(began).Nanoseconds()))
			}
		}
		check(b.gpu.Flush(b.ctx)) // what one turn freed is not the work of the next
	}
	return all
}
