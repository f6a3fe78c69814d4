// Command pairs keeps the tables of the libraries that this module works with. Each suite of make test
// leaves in build/pairs what its tests have proved; in README.md and docs/interop.md is that and no more.
//
//	go run ./ci/pairs go      runs the tests in Go that prove a pair
//	go run ./ci/pairs check   fails if a page differs from what passed
//	go run ./ci/pairs write   writes the tables
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// dir is where the suites leave their results.
var dir = filepath.Join("build", "pairs")

func main() {
	commands := map[string]func() error{"go": runGo, "check": check, "write": rewrite}
	command := commands[strings.Join(os.Args[1:], " ")]
	if command == nil {
		fmt.Fprintf(os.Stderr, "usage: go run ./ci/pairs %s\n", strings.Join(slices.Sorted(maps.Keys(commands)), "|"))
		os.Exit(2)
	}
	if err := command(); err != nil {
		fmt.Fprintf(os.Stderr, "ci/pairs: %v\n", err)
		os.Exit(1)
	}
}

// check compares the tables to what has passed. Tables of a real GPU are not kept: what is proved on
// one depends on the machine.
func check() error {
	pairs, err := read(dir)
	if err != nil {
		return err
	}
	if i := slices.IndexFunc(pairs, func(p pair) bool { return p.On != onCPU && p.On != onSimulator }); i >= 0 {
		fmt.Printf("ci/pairs: the tests ran on a %s, so the tables are not compared\n", pairs[i].On)
		return nil
	}
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(pages)) {
		page, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		found, err := differences(string(page), pages[name](pairs))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if found != nil {
			wrong = append(wrong, fmt.Sprintf("%s is not what passed (-: it states, +: the tests prove):\n%s", name, strings.Join(found, "\n")))
		}
	}
	if wrong != nil {
		return fmt.Errorf("%s\n\"make pairs\" writes the tables", strings.Join(wrong, "\n"))
	}
	return nil
}

func rewrite() error {
	pairs, err := read(dir)
	if err != nil {
		return err
	}
	for name, table := range pages {
		page, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		changed, err := replace(string(page), table(pairs))
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(name, []byte(changed), 0o666); err != nil {
			return err
		}
	}
	return nil
}
