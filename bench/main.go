// Command bench measures this library side by side with arrow-go's cdata and
// with a C program that does the same work with one malloc, in one process, turn
// by turn. It prints a table of ratios and writes them to a JSON file. Quote the
// ratios: single times depend on the machine and on the moment.
//
//	go run ./bench -out bench/results/latest.json
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
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
	markdown := flag.Bool("markdown", false, "print the table of docs/costs.md")
	check := flag.Bool("check", false, "fail when a promised ratio, measured again where it is missed, does not hold")
	flag.Parse()

	m := meter{round: *round, rounds: *rounds}
	results := run(m, "", "", 0)
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
	again := func(p promise) []Result { return run(m, p.operation, p.shape, p.columns) }
	if *check && !promisesHold(os.Stdout, results, again) {
		os.Exit(1)
	}
}

// subject is a shape to measure with.
type subject struct {
	name    string
	columns int
	mem     memory.Allocator
	build   func(memory.Allocator) arrow.Array
}

func subjects() (all []subject) {
	offHeap := mallocator.NewMallocator()
	for _, columns := range []int{1, 10, 100, 1000} {
		all = append(all, subject{"int64", columns, offHeap, int64s})
	}
	return append(all,
		subject{"utf8", 100, offHeap, utf8s},
		subject{"list<struct>", 100, offHeap, listsOfStructs},
		subject{"int64 on the Go heap", 100, memory.NewGoAllocator(), int64s})
}

// run measures an operation with a shape, or, where no operation is named, each with each.
func run(m meter, name, shapeName string, columns int) (results []Result) {
	for _, of := range []func(shape) []operation{operations, asyncOperations, goroutineOperations} {
		for _, sub := range subjects() {
			if name != "" && (sub.name != shapeName || sub.columns != columns) {
				continue
			}
			s := newShape(sub.name, sub.columns, sub.mem, sub.build)
			for _, op := range of(s) {
				if name == "" || op.name == name {
					results = append(results, m.measure(op, s)...)
				}
				if op.close != nil {
					op.close()
				}
			}
			s.release()
		}
	}
	return results
}
