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
	word, text string // ok, FAIL, skip or before, and what follows
	rule       string // of FAIL: the rule's sentence when it ran
}

// before is the word of a rule that differed, and was rewritten since.
const before = "before"

var (
	resultLine = regexp.MustCompile(`^(ok|FAIL|skip) ([a-z]\w*)(?:: (.*))?$`)
	pageLine   = regexp.MustCompile("^\\| `(\\w+)` \\| \\w+ \\| ([^|]*) \\|.*\\| ([^|]*) \\|$")
	// differsFrom is how a line begins that repeats the rule: what it rests on, and its sentence.
	differsFrom = regexp.MustCompile(`^(?:manual|seen on drivers|simulator, where the manual is silent): (.*?\.) here: `)
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
			line := result{word: m[1], text: m[3]}
			if rule := differsFrom.FindStringSubmatch(m[3]); rule != nil {
				line.rule, line.text = rule[1], strings.TrimPrefix(m[3], rule[0])
			}
			r.lines[m[2]] = line
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
	notRun      = "not run yet"
	isStricter  = "the simulator is stricter than drivers, which "
	differs     = "**differs**: "
	hadDiffered = "differed before the rule was rewritten: "
	wasSkipped  = "skipped: "
	ranOn       = "The GPU column is from this driver: "
	hasNotRun   = "The GPU column is empty: no GPU has run the rules yet."
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
		if m == nil || m[3] == notRun || strings.HasPrefix(m[3], isStricter) {
			continue
		}
		name, rule, cell := m[1], unescape(m[2]), unescape(m[3])
		if text, ok := strings.CutPrefix(cell, differs); ok {
			r.lines[name] = result{"FAIL", text, rule}
		} else if text, ok := strings.CutPrefix(cell, hadDiffered); ok {
			r.lines[name] = result{word: before, text: text}
		} else if text, ok := strings.CutPrefix(cell, wasSkipped); ok {
			r.lines[name] = result{word: "skip", text: text}
		} else {
			r.lines[name] = result{word: cell}
		}
	}
	return r
}

func escape(text string) string   { return strings.ReplaceAll(text, "|", "&#124;") }
func unescape(text string) string { return strings.ReplaceAll(text, "&#124;", "|") }

// of is the result of a rule as it is now.
func (r results) of(rule rule) result {
	line := r.lines[rule.name]
	if line.word == "FAIL" && line.rule != rule.text {
		return result{word: before, text: line.text}
	}
	return line
}

// cell is a result as the page has it.
func (r results) cell(rule rule) string {
	switch line := r.of(rule); line.word {
	case "":
		return notRun
	case "FAIL":
		return differs + escape(line.text)
	case before:
		return hadDiffered + escape(line.text)
	case "skip":
		return wasSkipped + escape(line.text)
	default:
		return line.word
	}
}

// gpuCell is the same of a GPU, which does not run the rules with which the simulator is stricter.
func (r results) gpuCell(rule rule) string {
	if rule.driver != "" {
		return isStricter + escape(rule.driver)
	}
	return r.cell(rule)
}

// count counts the rules of a GPU that have such a result.
func (r results) count(list []rule, word string) (n int) {
	for _, rule := range list {
		if rule.driver == "" && r.of(rule).word == word {
			n++
		}
	}
	return n
}

const introduction = `# Rules of the driver

What a CUDA driver does, as far as a program can observe it: each row is a function of the program in ci/kit/rules, which runs
on any driver. The tests of cudasim run it on the simulator. ` + "`go run ./ci/rules`" + ` writes this page.

The column *as* tells what a rule rests on: the *manual*; *seen* on drivers, while the manual is silent; or a *reading* of a
manual that leaves it open. A difference from a *manual* row is an error of the simulator, of the rule, or of the driver. One
from the others shows what the simulator should do. Where the simulator is *stricter than drivers* on purpose, since a program
must not do that, the rule runs on the simulator alone, and the GPU column tells what drivers do.

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
		fmt.Fprintf(&b, "The GPU follows %d and differs in %d; it had differed in %d that were rewritten since. %d are not run yet.\n\n%s%s.\n",
			gpu.count(list, "ok"), gpu.count(list, "FAIL"), gpu.count(list, before), gpu.count(list, ""), ranOn, gpu.driver)
	}
	group := ""
	for _, r := range list {
		if r.group != group {
			group = r.group
			fmt.Fprintf(&b, "\n## %s\n\n| rule | as | manual, or what is known | simulator | GPU |\n|---|---|---|---|---|\n",
				strings.ToUpper(group[:1])+group[1:])
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.name, r.basis, escape(r.text), simulator.cell(r), gpu.gpuCell(r))
	}
	return b.String()
}
