package main

import (
	"fmt"
	"io"
)

// promise is the least that a run must show; the README has what one run showed.
type promise struct {
	operation, shape, peer string
	columns                int
	least                  float64 // peer_ns / ns
	allocs                 float64 // at most
}

var promises = []promise{
	{"export+release", "int64", "cdata", 100, 30, 0},
	{"export+release", "int64", "C floor", 100, 1.0 / 6, 0},
	{"export+release", "int64", "cdata", 1000, 30, 0},
	{"import+release", "int64", "cdata", 100, 6, 3},
	{"import+release", "int64", "cdata", 1000, 6, 3},
	{"import+release", "utf8", "cdata", 100, 6, 3},
	{"import+release", "list<struct>", "cdata", 100, 6, 3},
	{"stream", "int64", "cdata", 100, 8, 4},
	{"stream", "utf8", "cdata", 100, 8, 4},
	{"async batch", "int64", "cdata", 100, 10, 8},
	{"idle async producer, CPU per second", "int64", "cdata", 1, 100, 0},
}

// promisesHold prints which promises hold.
func promisesHold(w io.Writer, results []Result) bool {
	all := true
	for _, p := range promises {
		found := false
		for _, r := range results {
			if r.Operation != p.operation || r.Shape != p.shape || r.Columns != p.columns || r.Peer != p.peer {
				continue
			}
			found = true
			word := "holds"
			if r.Ratio < p.least || r.Allocs > p.allocs+0.5 {
				word, all = "BROKEN", false
			}
			fmt.Fprintf(w, "%s: %s, %s x %d against %s: ratio %.2f (at least %.2f), allocations %.1f (at most %.0f)\n",
				word, p.operation, p.shape, p.columns, p.peer, r.Ratio, p.least, r.Allocs, p.allocs)
		}
		if !found {
			all = false
			fmt.Fprintf(w, "BROKEN: nobody measured %s, %s x %d against %s\n", p.operation, p.shape, p.columns, p.peer)
		}
	}
	return all
}
