package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// results are those of the rules on GPUs, by the names of the rules.
type results map[string]result

type result struct {
	word, text string // ok, FAIL or skip, and the difference or the reason
	driver     string // what the program said of the driver and the devices
	rule       string // of FAIL: the rule's sentence when it ran
}

var (
	resultLine = regexp.MustCompile(`^(ok|FAIL|skip) ([a-z]\w*)(?:: (.*))?$`)
	// differsFrom is how a line begins that repeats the rule: what it rests on, and its sentence.
	differsFrom = regexp.MustCompile(`^(?:manual|seen on drivers|simulator, where the manual is silent): (.*?\.) here: `)
	// noAnswer is why the program passes over rules of which a run then says nothing.
	noAnswer = regexp.MustCompile(`^no time was left$|^stricter than drivers, |^there is no such rule$`)
	// sectionRules is the line before the section rules, or before a part of it.
	sectionRules = regexp.MustCompile(`^== rules(:\w+)?$`)
	// noRule is a line of a run that failed as a whole.
	noRule = regexp.MustCompile(`^FAIL (driver|rules): `)
)

// readLine reads a line of a rule.
func readLine(line string) (name string, r result, ok bool) {
	m := resultLine.FindStringSubmatch(line)
	if m == nil {
		return "", result{}, false
	}
	r = result{word: m[1], text: m[3]}
	if rule := differsFrom.FindStringSubmatch(m[3]); rule != nil {
		r.rule, r.text = rule[1], strings.TrimPrefix(m[3], rule[0])
	}
	return m[2], r, true
}

// readOutput reads what the program printed on GPUs, in one run or several: alone, in the report of the kit, or in what the kit
// printed, which have other sections too.
func readOutput(text string) (results, error) {
	r, driver := results{}, ""
	for _, line := range ofRules(text) {
		switch name, result, ok := readLine(line); {
		case strings.HasPrefix(line, "driver: "):
			driver = line
		case strings.HasPrefix(line, "device ") && strings.Contains(line, "cudasim device"):
			return nil, errors.New("a run is of the simulator, not of a GPU")
		case driver != "" && (strings.HasPrefix(line, "device ") || strings.HasPrefix(line, "peer access ")):
			driver += "; " + line
		case strings.HasPrefix(line, "== ") || strings.HasPrefix(line, "-- "): // another run
			driver = ""
		case ok && !noRule.MatchString(line) && !noAnswer.MatchString(result.text):
			if driver == "" {
				return nil, fmt.Errorf(`%q comes before any line "driver: ", which says what it ran on`, line)
			}
			result.driver = driver
			r.add(results{name: result})
		}
	}
	if len(r) == 0 {
		return nil, errors.New("it has no lines of rules")
	}
	return r, nil
}

// ofRules returns the lines of the section rules, or all lines of a text without sections. They have no tabs, which separate the
// columns of the data.
func ofRules(text string) []string {
	lines := strings.Split(strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\t", " "), "\n")
	begins := func(line string) bool { return strings.HasPrefix(line, "== ") }
	if !slices.ContainsFunc(lines, begins) {
		return lines
	}
	inside := false
	return slices.DeleteFunc(lines, func(line string) bool {
		if begins(line) {
			inside = sectionRules.MatchString(line)
		}
		return !inside
	})
}

// add takes the results of a later run. A rule that it has skipped keeps what an earlier one has shown.
func (r results) add(run results) {
	for name, result := range run {
		if result.word != "skip" || r[name].word == "" || r[name].word == "skip" {
			r[name] = result
		}
	}
}

// keep drops results of rules that are gone, or of the simulator alone now.
func (r results) keep(list []rule) {
	maps.DeleteFunc(r, func(name string, _ result) bool {
		return !slices.ContainsFunc(list, func(rule rule) bool { return rule.name == name && rule.driver == "" })
	})
}

const dataHead = `# What GPUs have shown of the rules. "go run ./ci/rules OUTPUT" adds the results of a run; rules that are not here have not run.
# driver N: as the program printed it
# rule, number of the driver, result, difference or reason, the rule's sentence when it differed
`

// String is the file of the data.
func (r results) String() string {
	var head, rows strings.Builder
	var drivers []string
	head.WriteString(dataHead)
	for _, name := range slices.Sorted(maps.Keys(r)) {
		result := r[name]
		if !slices.Contains(drivers, result.driver) {
			drivers = append(drivers, result.driver)
			fmt.Fprintf(&head, "# driver %d: %s\n", len(drivers), result.driver)
		}
		row := fmt.Sprintf("%s\t%d\t%s\t%s\t%s", name, slices.Index(drivers, result.driver)+1, result.word, result.text, result.rule)
		rows.WriteString(strings.TrimRight(row, "\t") + "\n")
	}
	return head.String() + rows.String()
}

// readData reads the file of the data.
func readData(text string) (results, error) {
	r, drivers := results{}, map[string]string{}
	for line := range strings.Lines(strings.TrimPrefix(text, dataHead)) {
		line = strings.TrimSuffix(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# driver "); ok {
			number, driver, _ := strings.Cut(rest, ": ")
			drivers[number] = driver
			continue
		}
		f := append(strings.Split(line, "\t"), "", "")
		if len(f) < 5 || drivers[f[1]] == "" {
			return nil, fmt.Errorf("%s: %q is no row", dataPath, line)
		}
		r[f[0]] = result{word: f[2], text: f[3], driver: drivers[f[1]], rule: f[4]}
	}
	return r, nil
}

// state is what the GPUs have shown of a rule as it is now.
type state int

// In the order in which a GPU should run them.
const (
	notRun    state = iota
	differs         // and nothing was done about it
	rewritten       // had differed, and its sentence is another one now
	skipped
	follows
	simulated // the simulator is stricter than drivers, which are not asked
)

func (r results) of(rule rule) state {
	result := r[rule.name]
	switch {
	case rule.driver != "":
		return simulated
	case result.word == "FAIL" && result.rule != rule.text:
		return rewritten
	}
	return map[string]state{"FAIL": differs, "skip": skipped, "ok": follows}[result.word]
}

// in returns the rules of a state.
func (r results) in(list []rule, s state) []rule {
	return slices.DeleteFunc(slices.Clone(list), func(rule rule) bool { return r.of(rule) != s })
}

// order is the arguments of the program with which a GPU runs all rules, a line each: those first that no GPU has run, then those
// that differed, then those that others lacked something for, then those that GPUs follow. The program runs the rules before
// a line "then" before those after it.
func (r results) order(list []rule) string {
	var parts []string
	for _, states := range [][]state{{notRun}, {differs, rewritten}, {skipped}, {follows}} {
		var part strings.Builder
		for _, rule := range list {
			if slices.Contains(states, r.of(rule)) {
				part.WriteString(rule.name + "\n")
			}
		}
		if part.Len() > 0 {
			parts = append(parts, part.String())
		}
	}
	return cmp.Or(strings.Join(parts, "then\n"), "all\n")
}
