package main

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// results are those of a driver, by the names of the rules.
type results struct {
	driver string // what the program says about driver and devices; "" if it has not run
	lines  map[string]result
}

type result struct {
	word, text string // ok, FAIL or skip, and what follows
}

var (
	resultLine = regexp.MustCompile(`^(ok|FAIL|skip) ([a-z]\w*)(?:: (.*))?$`)
	pageLine   = regexp.MustCompile("^\\| `(\\w+)` \\|.*\\| ([^|]*) \\|$")
	// differsFrom is how a line begins that repeats the rule.
	differsFrom = regexp.MustCompile(`^.* here: `)
)

// readOutput reads what the program printed, possibly with the output of other sections around it.
func readOutput(text string) results {
	r := results{lines: map[string]result{}}
	var driver []string
	if _, after, found := strings.Cut(text, "\n== rules\n"); found {
		text, _, _ = strings.Cut(after, "\n== ")
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "driver: ") || strings.HasPrefix(line, "device ") {
			driver = append(driver, line)
		} else if m := resultLine.FindStringSubmatch(line); m != nil {
			r.lines[m[2]] = result{m[1], differsFrom.ReplaceAllString(m[3], "")}
		}
	}
	r.driver = strings.Join(driver, "; ")
	return r
}

// readGPU reads the output of a run on a GPU.
func readGPU(text string) (results, error) {
	r := readOutput(text)
	switch {
	case len(r.lines) == 0:
		return r, errors.New("it has no lines of rules")
	case strings.Contains(r.driver, "cudasim device"):
		return r, errors.New("it is of the simulator, not of a GPU")
	}
	return r, nil
}

const (
	notRun    = "not run yet"
	ranOn     = "The GPU column is from this driver: "
	hasNotRun = "The GPU column is empty: no GPU has run the rules yet."
)

// readPage reads the GPU column of a page.
func readPage(text string) results {
	r := results{lines: map[string]result{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if driver, ok := strings.CutPrefix(line, ranOn); ok {
			r.driver = strings.TrimSuffix(driver, ".")
		}
		m := pageLine.FindStringSubmatch(line)
		if m == nil || m[2] == notRun {
			continue
		}
		cell := m[2]
		if differs, ok := strings.CutPrefix(cell, "**differs**: "); ok {
			r.lines[m[1]] = result{"FAIL", unescape(differs)}
		} else if skipped, ok := strings.CutPrefix(cell, "skipped: "); ok {
			r.lines[m[1]] = result{"skip", unescape(skipped)}
		} else {
			r.lines[m[1]] = result{word: cell}
		}
	}
	return r
}

func escape(text string) string   { return strings.ReplaceAll(text, "|", "&#124;") }
func unescape(text string) string { return strings.ReplaceAll(text, "&#124;", "|") }

// cell is a result as the page has it.
func (r results) cell(name string) string {
	switch line, ok := r.lines[name]; {
	case !ok:
		return notRun
	case line.word == "FAIL":
		return "**differs**: " + escape(line.text)
	case line.word == "skip":
		return "skipped: " + escape(line.text)
	default:
		return line.word
	}
}

const introduction = `# Rules of the driver

What a CUDA driver does, as far as a program can observe it: each row is a function of the program in ci/kit/rules, which runs
on any driver. The tests of cudasim run it on the simulator. ` + "`go run ./ci/rules`" + ` writes this page.

The column *as* tells what a rule rests on: the *manual*; *seen* on drivers, while the manual is silent; or a *reading* of a
manual that leaves it open. A difference from a *manual* row is an error of the simulator, of the rule, or of the driver. One
from the others shows what the simulator should do.

To run them where there is a GPU, and to fill the GPU column afterwards:

` + "```sh" + `
ci/gpu build FOLDER rules && FOLDER/gpu run rules
go run ./ci/rules FOLDER/results/rules.txt
` + "```" + `

`

// page is docs/gpu/rules.md.
func page(list []rule, simulator, gpu results) string {
	var b strings.Builder
	b.WriteString(introduction)
	fmt.Fprintf(&b, "There are %d rules. ", len(list))
	if len(gpu.lines) == 0 {
		b.WriteString(hasNotRun + "\n")
	} else {
		differ := 0
		for _, r := range list {
			if gpu.lines[r.name].word == "FAIL" {
				differ++
			}
		}
		fmt.Fprintf(&b, "The GPU differs in %d.\n\n%s%s.\n", differ, ranOn, gpu.driver)
	}
	group := ""
	for _, r := range list {
		if r.group != group {
			group = r.group
			fmt.Fprintf(&b, "\n## %s\n\n| rule | as | manual, or what is known | simulator | GPU |\n|---|---|---|---|---|\n",
				strings.ToUpper(group[:1])+group[1:])
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.name, r.basis, escape(r.text), simulator.cell(r.name), gpu.cell(r.name))
	}
	return b.String()
}
