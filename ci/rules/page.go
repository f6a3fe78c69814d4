package main

import (
	"fmt"
	"slices"
	"strings"
)

const introduction = `# Rules of the driver

What a CUDA driver does, as far as a program can observe it: each rule is a function in C of the program in ci/kit/rules, which runs
on any driver. The tests of cudasim run all of them on the simulator, which follows each. ` + "`ci/kit/rules/build FOLDER && FOLDER/rules --list`" + `
prints them.

A rule rests on the *manual*; was *seen* on drivers, while the manual is silent; or is a *reading* of a manual that leaves it open. A
difference from the *manual* is an error of the simulator, of the rule, or of the driver. One from the others shows what the
simulator should do. Where the simulator is *stricter than drivers* on purpose, since a program must not do that, the rule runs
on the simulator alone.

[results.tsv](../../ci/kit/rules/results.tsv) has the result of each rule that a GPU has run; this page has the others. To run them where
there is a GPU, or some of them, and to add the results, of which each rule keeps the last:

` + "```sh" + `
ci/gpu build FOLDER rules && FOLDER/gpu run rules
go run ./ci/rules FOLDER/results/rules.txt          # or the report; without a file, after a change of the rules
` + "```" + `

`

// page is docs/gpu/rules.md.
func page(list []rule, r results) string {
	var b strings.Builder
	b.WriteString(introduction)
	count := func(s state) int { return len(r.in(list, s)) }
	fmt.Fprintf(&b, "Of %d rules, GPUs follow %d, differ from %d, and had differed from %d that were rewritten since; %d lacked something that they\n"+
		"need, %d have not run, and %d are of the simulator alone.\n",
		len(list), count(follows), count(differs), count(rewritten), count(skipped), count(notRun), count(simulated))
	drivers(&b, r)
	table(&b, "Rules that a GPU does not follow", r.in(list, differs), "| rule | as | the rule | the GPU |", func(rule rule) string {
		return r[rule.name].text
	})
	table(&b, "Rewritten since a GPU differed", r.in(list, rewritten), "| rule | as | the rule now | the GPU, of the rule as it was |", func(rule rule) string {
		return r[rule.name].text
	})
	reasons(&b, r, r.in(list, skipped))
	table(&b, "Not run yet", r.in(list, notRun), "| rule | as | the rule | about |", func(rule rule) string { return rule.group })
	table(&b, "Of the simulator alone", r.in(list, simulated), "| rule | as | the rule | drivers |", func(rule rule) string { return rule.driver })
	return b.String()
}

// drivers lists those that have run rules.
func drivers(b *strings.Builder, r results) {
	rules := map[string]int{}
	for _, result := range r {
		rules[result.driver]++
	}
	var lines []string
	for driver, n := range rules {
		lines = append(lines, fmt.Sprintf("- %s: %d rules\n", strings.TrimPrefix(driver, "driver: "), n))
	}
	slices.Sort(lines)
	if len(lines) > 0 {
		b.WriteString("\nThe results are of these drivers and devices:\n\n" + strings.Join(lines, ""))
	}
}

func table(b *strings.Builder, title string, rules []rule, head string, last func(rule) string) {
	if len(rules) == 0 {
		return
	}
	fmt.Fprintf(b, "\n## %s\n\n%s\n|---|---|---|---|\n", title, head)
	for _, rule := range rules {
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", rule.name, rule.basis, escape(rule.text), escape(last(rule)))
	}
}

// reasons lists skipped rules, a row for each reason.
func reasons(b *strings.Builder, r results, rules []rule) {
	if len(rules) == 0 {
		return
	}
	names := map[string][]string{}
	var order []string
	for _, rule := range rules {
		why := r[rule.name].text
		if names[why] == nil {
			order = append(order, why)
		}
		names[why] = append(names[why], "`"+rule.name+"`")
	}
	b.WriteString("\n## Skipped on each GPU so far\n\n| why | rules |\n|---|---|\n")
	for _, why := range order {
		fmt.Fprintf(b, "| %s | %s |\n", escape(why), strings.Join(names[why], ", "))
	}
}

func escape(text string) string { return strings.ReplaceAll(text, "|", "&#124;") }
