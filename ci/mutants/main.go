// Mutants removes each wait of this library, one at a time, and runs the tests: every
// mutant must turn them red. It prints a table, and fails if a mutant survives.
//
//	go run ./ci/mutants             # all, from the root of the repository
//	go run ./ci/mutants -list       # which there are
//	go run ./ci/mutants -run 'location.go|room'
//
// Waits are found in the source by name (find.go), so that a new one cannot be forgotten, and checks that are no calls
// by a comment beside them (marks.go). The source stays as it is: a mutant is an overlay of the build.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"sync"
	"time"
)

func main() {
	var (
		list    = flag.Bool("list", false, "print the mutants and run nothing")
		pattern = flag.String("run", "", "only mutants whose site or removed text matches this regular expression")
		jobs    = flag.Int("j", 2, "mutants that are tested at the same time")
		timeout = flag.Duration("timeout", 2*time.Minute, "of the tests of one package; a mutant that hangs is killed by it")
	)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	survivors, err := run(ctx, *pattern, *list, *jobs, tester{timeout: *timeout})
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	}
	if survivors > 0 {
		fmt.Fprintf(os.Stderr, "mutants: %d survived\n", survivors)
		os.Exit(1)
	}
}

func run(ctx context.Context, pattern string, list bool, jobs int, t tester) (survivors int, err error) {
	wanted, err := regexp.Compile(pattern)
	if err != nil {
		return 0, err
	}
	all, err := findAll(".")
	if err != nil {
		return 0, err
	}
	var mutants []*mutant
	for _, m := range all {
		if wanted.MatchString(m.site()) || wanted.MatchString(m.removed) {
			mutants = append(mutants, m)
		}
	}
	if len(mutants) == 0 {
		return 0, fmt.Errorf("no mutant matches %q", pattern)
	}
	if list {
		for _, m := range mutants {
			fmt.Printf("%-34s %-28s %s\n", m.site(), m.function, m.removed)
		}
		return 0, nil
	}
	if t.dir, err = os.MkdirTemp("", "mutants"); err != nil {
		return 0, err
	}
	defer os.RemoveAll(t.dir)
	if err := t.baseline(ctx, mutants); err != nil {
		return 0, err
	}
	return t.testAll(ctx, mutants, jobs)
}

// testAll prints a row for each mutant, in order.
func (t *tester) testAll(ctx context.Context, mutants []*mutant, jobs int) (survivors int, err error) {
	results := make([]chan verdict, len(mutants))
	for i := range results {
		results[i] = make(chan verdict, 1)
	}
	next := make(chan int, len(mutants))
	for i := range mutants {
		next <- i
	}
	close(next)
	var running sync.WaitGroup
	defer running.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for range max(jobs, 1) {
		running.Go(func() {
			for i := range next {
				results[i] <- t.test(ctx, mutants[i])
			}
		})
	}
	fmt.Printf("| site | function | removed | killed by | seconds |\n|---|---|---|---|---|\n")
	for i, m := range mutants {
		v := <-results[i]
		if errors.Is(v.err, errBuild) { // no test saw it: it counts as a survivor, and the others are still tested
			fmt.Fprintf(os.Stderr, "%s: %s: %v\n", m.site(), m.removed, v.err)
			v = verdict{took: v.took}
		}
		if v.err != nil {
			return survivors, fmt.Errorf("%s: %s: %w", m.site(), m.removed, v.err)
		}
		killer := v.killer
		if killer == "" {
			killer = "**SURVIVED**"
			survivors++
		}
		fmt.Printf("| %s | %s | `%s` | %s | %.0f |\n", m.site(), m.function, m.removed, killer, v.took.Seconds())
	}
	return survivors, nil
}
