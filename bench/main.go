// Command bench measures this library side by side with others in one process, turn by turn:
// arrow-go's cdata, a C program that does the same work with one malloc, and those that
// bench/peers/build.sh has built: Arrow C++, nanoarrow and arrow-rs. Calls from Python it measures beside C, PyO3,
// nanobind and ctypes, which bench/python/build.sh has built, and Arrow Flight beside arrow-go's and PyArrow's. It prints a table of ratios and
// writes them to a JSON file, from which docs/performance.md has its pictures. Quote the
// ratios: single times depend on the machine and on the moment.
//
//	go run ./bench -out bench/results/latest.json
//	go run ./bench -only 'import|export' -shape int64 -columns 1,100 -peer nanoarrow -rounds 5
package main

import (
	"errors"
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
	text := flag.String("text", "", "append every turn to this file, as Go's benchmark format")
	quick := flag.Bool("quick", false, "batches of 1 and of 100 columns only, and nothing else; with few and short rounds, a run takes less than a minute")
	pages := flag.String("pages", "", "measure nothing; draw the pictures of this folder, docs, and write its tables, from the results")
	check := flag.Bool("check", false, "fail when a promised ratio, measured again where it is missed, does not hold")
	flag.Parse()
	if *pages != "" {
		return writePages(*pages, latest)
	}

	loadLibraries(os.Stderr)
	m := meter{round: *round, rounds: *rounds}
	if *quick && len(f.columns) == 0 {
		f.columns = []int{1, 100}
	}
	r := report{Machine: thisMachine(), Results: run(m, f)}
	r.more(m, f)
	r.print(os.Stdout)
	if *out != "" {
		if err := r.write(*out); err != nil {
			return err
		}
	}
	if *text != "" {
		if err := appendText(*text, r.Results); err != nil {
			return err
		}
	}
	if *check && !promisesHold(os.Stdout, r.Results, measuredAgain(m)) {
		return errBroken
	}
	return nil
}

// latest has the results of the last full run.
const latest = "bench/results/latest.json"

// more measures what is no operation beside peers.
func (r *report) more(m meter, f filter) {
	if f.alone(endToEndName) {
		r.Results = append(r.Results, measureEndToEnd(os.Stderr, m.rounds)...)
	}
	if f.alone(flightName) {
		r.Results = append(r.Results, measureFlight(os.Stderr, m)...)
	}
	if f.alone(callsName) {
		r.addCalls(measureCalls(os.Stderr, m))
	}
	if f.alone(liveName) {
		r.Live = measureLive()
	}
}

// measuredAgain measures what a promise is about.
func measuredAgain(m meter) func(promise) []Result {
	return func(p promise) []Result {
		if isCall(p.operation) {
			return measureCalls(os.Stderr, m, p.operation).Rows
		}
		if isFlight(p.operation) {
			return measureFlight(os.Stderr, m, p)
		}
		return run(m, p.filter())
	}
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

func appendText(path string, results []Result) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return errors.Join(writeText(file, results), file.Close())
}
