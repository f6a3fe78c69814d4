package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// rows is the file of what was measured.
type rows struct {
	file    *os.File
	out     io.Writer
	known   map[string]row
	skipped map[string]bool
	done    []string // the rows that an earlier run has judged
}

// row is a measurement, in microseconds.
type row struct{ ours, driver float64 }

// ratio is how fast ours is: 1 is as fast as the driver.
func (r row) ratio() float64 { return r.driver / r.ours }

// openRows reads the rows of an earlier run. One that was being written when that was killed is left out.
func openRows(path string, out io.Writer) (*rows, error) {
	r := &rows{out: out, known: map[string]row{}, skipped: map[string]bool{}}
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var kept strings.Builder
	for line := range strings.Lines(string(text)) {
		if name, one, ok := parse(line); ok {
			r.known[name] = one
			kept.WriteString(line)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	if err := os.WriteFile(path+".new", []byte(kept.String()), 0o666); err != nil {
		return nil, err
	}
	if err := os.Rename(path+".new", path); err != nil {
		return nil, err
	}
	r.file, err = os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	return r, err
}

func parse(line string) (name string, one row, ok bool) {
	fields := strings.Split(line, "\t")
	if len(fields) != 4 || !strings.HasSuffix(line, "\n") {
		return "", row{}, false
	}
	ours, err := strconv.ParseFloat(fields[1], 64)
	driver, err2 := strconv.ParseFloat(fields[2], 64)
	return fields[0], row{ours, driver}, err == nil && err2 == nil && ours > 0
}

// add writes a row, and prints it.
func (r *rows) add(name string, ours, driver float64) error {
	one := row{ours, driver}
	if _, err := fmt.Fprintf(r.file, "%s\t%.3f\t%.3f\t%.3f\n", name, ours, driver, one.ratio()); err != nil {
		return err
	}
	if err := r.file.Sync(); err != nil {
		return err
	}
	r.known[name] = one
	r.print(name)
	return nil
}

// print prints a row, and reports whether it is there.
func (r *rows) print(name string) bool {
	one, ok := r.known[name]
	if ok {
		fmt.Fprintf(r.out, "row %s: %.1f µs, the driver's %.1f µs, ratio %.2f\n", name, one.ours, one.driver, one.ratio())
	}
	return ok
}

// skip leaves the rows of a comparison out, which the machine does not support.
func (r *rows) skip(c *comparison, reason error) {
	fmt.Fprintf(r.out, "skip %s: %v\n", c.name, reason)
	for _, name := range c.ours {
		r.skipped[c.row(name)] = true
	}
}

// judge prints which ratios are those that are promised, unless the driver is simulated, and whether all rows are there. It returns
// how many are missing.
func (r *rows) judge(all []*comparison, simulated bool) (missing int) {
	count := 0
	for _, c := range all {
		for _, of := range c.ours {
			name := c.row(of)
			count++
			one, ok := r.known[name]
			switch least, promised := c.least[of]; {
			case !ok && !r.skipped[name]:
				fmt.Fprintf(r.out, "missing: %s\n", name)
				missing++
			case !ok || !promised || simulated || slices.Contains(r.done, name):
			case one.ratio() >= least:
				fmt.Fprintf(r.out, "ok %s: ratio %.2f, goal %.2f\n", name, one.ratio(), least)
			default:
				fmt.Fprintf(r.out, "FAIL %s: ratio %.2f, goal %.2f\n", name, one.ratio(), least)
			}
		}
	}
	if missing == 0 {
		fmt.Fprintf(r.out, "ok rows: all %d are there\n", count)
	}
	return missing
}

func (r *rows) close() { _ = r.file.Close() }
