// Counts compares what the hot paths of the library cost with what they cost at another revision, in units that other
// load of the machine does not change: instructions, allocations, calls between Go and C, calls of the driver.
//
//	go run ./ci/counts            # fails, and names the paths, if a count has grown by more than 3 %
//	go run ./ci/counts -accept    # writes the lines of these paths into docs/counts.txt
//	go run ./ci/counts -table     # prints the counts of this tree
//
// Both revisions are measured on this machine: its processor, C library and version of Go have their part in each
// count. The base is the revision that has last changed docs/counts.txt, so that growth does not add up unseen. A
// change that makes a path more expensive on purpose changes its line in that file.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

const fileName = "docs/counts.txt"

func main() {
	accept := flag.Bool("accept", false, "write the lines of paths that have grown into "+fileName)
	only := flag.Bool("table", false, "print the counts of this tree")
	base := flag.String("base", "", "the revision to compare with, instead of the one that has last changed "+fileName)
	flag.Parse()
	if err := do(os.Stdout, *base, *accept, *only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func do(w io.Writer, base string, accept, only bool) error {
	if _, err := exec.LookPath("valgrind"); err != nil {
		return fmt.Errorf("counts: valgrind counts the instructions, and is not installed: %w", err)
	}
	out, err := filepath.Abs("build/counts")
	if err != nil {
		return err
	}
	if only {
		return printTable(w, out)
	}
	if base == "" {
		if base, err = baseOf(fileName); err != nil {
			fmt.Fprintf(w, "counts: NOT COMPARED: this checkout has no earlier revision: %v\n", err)
			return nil
		}
	}
	j, err := newJudgement(out, base)
	if err != nil {
		return err
	}
	if err := j.measure(w); err != nil {
		return err
	}
	if accept {
		return j.accept()
	}
	return j.verdict(w)
}

func printTable(w io.Writer, out string) error {
	p, err := build(".", filepath.Join(out, "here"))
	if err != nil {
		return err
	}
	t, err := p.measure()
	if err == nil {
		_, err = io.WriteString(w, t.text(""))
	}
	return err
}
