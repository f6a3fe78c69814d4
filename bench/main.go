// Command bench measures this library side by side with others in one process, turn by turn:
// arrow-go's cdata, a C program that does the same work with one malloc, and those that
// bench/peers/build.sh has built: Arrow C++, nanoarrow and arrow-rs. It prints a table of ratios and
// writes them to a JSON file, from which docs/performance.md has its pictures. Quote the
// ratios: single times depend on the machine and on the moment.
//
//	go run ./bench -out bench/results/latest.json
//	go run ./bench -only 'import|export' -shape int64 -columns 1,100 -peer nanoarrow -rounds 5
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	if err := command(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func command() error {
	var f filter
	f.flags(flag.CommandLine)
	out := flag.String("out", "", "write the results to this JSON file")
	round := flag.Duration("round", 10*time.Millisecond, "length of one turn")
	rounds := flag.Int("rounds", 15, "turns of each side; the medians count")
	markdown := flag.Bool("markdown", false, "print the table of docs/costs.md")
	check := flag.Bool("check", false, "fail when a promised ratio, measured again where it is missed, does not hold")
	flag.Parse()

	loadLibraries(os.Stderr)
	m := meter{round: *round, rounds: *rounds}
	results := run(m, f)
	if *markdown {
		printMarkdown(os.Stdout, results)
	} else {
		printTable(os.Stdout, results)
	}
	if *out != "" {
		if err := (report{Machine: thisMachine(), Results: results}).write(*out); err != nil {
			return err
		}
	}
	if *check && !promisesHold(os.Stdout, results, func(p promise) []Result { return run(m, p.filter()) }) {
		return errBroken
	}
	return nil
}

// run measures what the filter selects.
func run(m meter, f filter) (results []Result) {
	for _, sub := range subjects() {
		var wanted []measurement
		for _, of := range kinds {
			for _, one := range of(sub) {
				if f.selects(one.name, sub.name, sub.columns) {
					wanted = append(wanted, one)
				}
			}
		}
		if len(wanted) == 0 {
			continue
		}
		s := newShape(sub)
		for _, one := range wanted {
			op := one.open(s)
			op.name = one.name
			op.peers = f.peers(op.peers)
			results = append(results, m.measure(op, s)...)
			op.end()
		}
		s.release()
	}
	return results
}
