package main

// What ours are to have of the speed of the driver's.
const (
	leastPinned = 0.9
	leastPlain  = 0.9
	leastWarm   = 0.8
)

// everything is all comparisons, the most valuable first. A simulated machine copies with the CPU, so it has small ones.
func everything(simulated bool) (all []*comparison) {
	judged, sizes, allocated := shape{1, 64 * mib}, []shape{{1, 16 * mib}, {100, 64 << 10}, {1, 256 * mib}, {1, mib}}, []int64{4 << 10, mib, 64 * mib}
	if simulated {
		judged, sizes, allocated = shape{1, 4 * mib}, []shape{{10, 64 << 10}, {1, mib}}, allocated[:2]
	}
	all = append(all, pinned(judged, true, leastPinned), pinned(judged, false, leastPinned))
	all = append(all, ofPlain(judged, leastPlain)...)
	for _, bytes := range allocated {
		all = append(all, allocators(bytes)...)
	}
	all = append(all, orders(), handOver())
	for _, s := range sizes {
		least := 0.0
		if s.columns == 1 && s.column > mib {
			least = leastPlain
		}
		all = append(all, ofPlain(s, least)...)
		all = append(all, pinned(s, true, 0), pinned(s, false, 0))
	}
	return all
}

func ofPlain(s shape, least float64) []*comparison {
	return []*comparison{plain(s, true, least), plain(s, false, least), fresh(s, least)}
}
