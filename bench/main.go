// Command bench measures this library side by side with arrow-go's cdata and
// with a C program that does the same work with one malloc, in one process, turn
// by turn. It prints a table of ratios and writes them to a JSON file. Ratios are
// what to quote: single times depend on the machine and on the moment.
//
//	go run ./bench -out bench/results/latest.json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
)

// Result is one row: our operation beside a peer's, measured in turns.
type Result struct {
	Operation string  `json:"operation"`
	Shape     string  `json:"shape"`
	Columns   int     `json:"columns"`
	NS        float64 `json:"ns"`     // ours, nanoseconds per operation
	Allocs    float64 `json:"allocs"` // ours, Go allocations per operation
	Peer      string  `json:"peer"`
	PeerNS    float64 `json:"peer_ns"`
	Ratio     float64 `json:"ratio"` // peer_ns / ns: above 1, ours is faster
}

func main() {
	out := flag.String("out", "", "write the results to this JSON file")
	round := flag.Duration("round", 10*time.Millisecond, "length of one turn")
	rounds := flag.Int("rounds", 15, "turns of each side; the medians count")
	markdown := flag.Bool("markdown", false, "print the table of the README")
	check := flag.Bool("check", false, "fail when a promised ratio does not hold")
	flag.Parse()

	m := meter{round: *round, rounds: *rounds}
	results := run(m)
	if *markdown {
		printMarkdown(os.Stdout, results)
	} else {
		printTable(results)
	}
	if *out != "" {
		text, err := json.MarshalIndent(results, "", "  ")
		if err == nil {
			err = os.WriteFile(*out, append(text, '\n'), 0o644)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
	}
	if *check && !promisesHold(os.Stdout, results) {
		os.Exit(1)
	}
}

func run(m meter) []Result {
	offHeap, goHeap := mallocator.NewMallocator(), memory.NewGoAllocator()
	var results []Result
	measure := func(s shape) {
		for _, op := range operations(s) {
			results = append(results, m.compare(op, s)...)
		}
		s.release()
	}
	for _, columns := range []int{1, 10, 100, 1000} {
		measure(newShape("int64", columns, offHeap, int64s))
	}
	measure(newShape("utf8", 100, offHeap, utf8s))
	measure(newShape("list<struct>", 100, offHeap, listsOfStructs))
	measure(newShape("int64 on the Go heap", 100, goHeap, int64s))
	return append(results, asyncResults(m, func(columns int) shape {
		return newShape("int64", columns, offHeap, int64s)
	})...)
}
