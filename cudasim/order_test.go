package cudasim

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
)

// proof is the symptom by which a program of testdata/order shows a missing wait.
type proof int

const (
	violation     proof = iota // a violation that names both calls, in every schedule
	changedSource              // a violation, in the lazy schedule
	garbage                    // the program reads garbage, in the lazy schedule
	heldUp                     // a call waits for work that is held, in every schedule
	failure                    // a call fails, in every schedule
	alwaysInOrder              // nothing: the program has no wrong variant
	kindsOfProof
)

// ordered is one program of testdata/order.
type ordered struct {
	name    string
	proof   proof
	calls   [2]string // that the violation names
	options []string  // of the machines that the program is run on
}

// lazy is the schedule in which nothing runs before the host waits for it.
const lazy = "schedule=lazy"

// schedules are those that each program is run in. Each has its share of the runs.
var schedules = []struct {
	options string
	share   int
}{
	{"schedule=inorder", 1},
	{"schedule=inorder,delay=200", 1},
	{"schedule=random,delay=100,seed=1", 2},
	{"schedule=random,delay=100,seed=2", 2},
	{lazy, 1},
}

func buildOrder(t testing.TB, flags ...string) rules {
	t.Helper()
	const kit = "../ci/kit/rules/"
	return buildProgram(t, kit+"help.c "+kit+"fixture.c "+kit+"driver.c "+kit+"gate.c "+kit+"simulator.c "+
		"testdata/simulator.c testdata/order/*.c", flags...)
}

// ordered lists the programs; pageable_async=* stands for both values.
func (r rules) ordered(t testing.TB) (list []ordered) {
	t.Helper()
	out, err := r.run(t, "", "", "--list")
	require.NoError(t, err, "%s", out)
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		require.Len(t, f, 5)
		kind, err := strconv.Atoi(f[1])
		require.NoError(t, err)
		require.Less(t, proof(kind), kindsOfProof)
		p := ordered{name: f[0], proof: proof(kind), calls: [2]string{f[2], f[3]}, options: []string{f[4]}}
		if both := strings.Split(f[4], "*"); len(both) == 2 {
			p.options = []string{both[0] + "0" + both[1], both[0] + "1" + both[1]}
		}
		same := func(other ordered) bool { return other.name == p.name }
		require.False(t, slices.ContainsFunc(list, same), "two programs are named %s", p.name)
		if chosen(t, p.name) {
			list = append(list, p)
		}
	}
	require.NotEmpty(t, list, "programs named %s", *only)
	return list
}

// variants returns the variants whose outcome is known in a schedule.
func (p ordered) variants(schedule string) string {
	switch p.proof {
	case violation, heldUp, failure:
		return "both"
	case changedSource, garbage:
		if schedule == lazy {
			return "both"
		}
	}
	return "right"
}

// names reports whether a violation names both calls, as often as they are named in calls.
func (p ordered) names(text string) bool {
	count := func(call string) int {
		notInName := func(c rune) bool {
			return c != '_' && (c < '0' || '9' < c) && (c < 'A' || 'Z' < c) && (c < 'a' || 'z' < c)
		}
		n := 0
		for _, word := range strings.FieldsFunc(text, notInName) {
			if word == call {
				n++
			}
		}
		return n
	}
	if p.calls[0] == p.calls[1] {
		return count(p.calls[0]) >= 2
	}
	return count(p.calls[0]) > 0 && count(p.calls[1]) > 0
}

var runsOfOrder = flag.Int("runs", 30, "how often each program of the tests of order runs; make soak runs them 100 times")

// TestOrder runs every program in every schedule: with all its waits it is never
// reported, and with one wait less in every run. The program itself judges each run.
func TestOrder(t *testing.T) {
	t.Parallel()
	r := buildOrder(t)
	list := r.ordered(t)
	pairs := 0
	for _, p := range list {
		if p.proof == violation {
			pairs++
		}
	}
	require.True(t, pairs >= 60 || *only != "")
	runs := *runsOfOrder
	if testing.Short() {
		runs = 10
	}
	var wait sync.WaitGroup
	turns := make(chan struct{}, 16) // the processes sleep most of the time
	for _, s := range schedules {
		for b, names := range batches(list, s.options) {
			for names := range slices.Chunk(names, 24) {
				wait.Go(func() {
					turns <- struct{}{}
					defer func() { <-turns }()
					runs := strconv.Itoa((runs + s.share - 1) / s.share)
					out, err := r.run(t, b.machine, "", strings.Join(names, ","), b.variants, runs)
					assert.NoError(t, err, "CUDASIM=%s order NAME %s %s\n%s", b.machine, b.variants, runs, out)
				})
			}
		}
	}
	wait.Wait()
}

// batch is what programs have in common that run in one process, which the first that fails ends.
type batch struct{ machine, variants string }

// batches returns the names of the programs that run in a schedule.
func batches(list []ordered, schedule string) map[batch][]string {
	all := map[batch][]string{}
	for _, p := range list {
		for _, options := range p.options {
			b := batch{strings.TrimSuffix(schedule+","+options, ","), p.variants(schedule)}
			all[b] = append(all[b], p.name)
		}
	}
	return all
}

// TestOrderAtExit leaves the work pending when the process ends: the report that is
// written then has waited for it.
func TestOrderAtExit(t *testing.T) {
	t.Parallel()
	r := buildOrder(t)
	for _, p := range r.ordered(t) {
		if p.proof != violation {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			for _, options := range p.options {
				report := r.reportAtExit(t, p, lazy+","+options)
				named := false
				for _, v := range report.Violations {
					named = named || p.names(v)
				}
				assert.True(t, named, "%q does not name %q", report.Violations, p.calls)
			}
		})
	}
}

func (r rules) reportAtExit(t *testing.T, p ordered, options string) (report Report) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.json")
	options = fmt.Sprint(strings.TrimSuffix(options, ","), ",report=", path)
	out, err := r.run(t, options, "", p.name, "wrong", "exit")
	require.NoError(t, err, "CUDASIM=%s order %s wrong exit\n%s", options, p.name, out)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &report), "%s", text)
	return report
}

// The option race=0 switches off the violations of unordered accesses.
func TestOrderIsNotCheckedIfSwitchedOff(t *testing.T) {
	t.Parallel()
	r := buildOrder(t)
	p := ordered{name: "a_wait_for_an_event"}
	assert.Empty(t, r.reportAtExit(t, p, "race=0").Violations)
	assert.NotEmpty(t, r.reportAtExit(t, p, "race=1").Violations)
	var exit *exec.ExitError
	out, err := r.run(t, "race=0", "", p.name, "wrong", "1")
	require.ErrorAs(t, err, &exit)
	assert.Contains(t, string(out), "no violation")
}

// TestOrderUnderSanitizers runs the right variants: one process for all programs of the
// same options.
func TestOrderUnderSanitizers(t *testing.T) {
	t.Parallel()
	emulated.Skip(t, emulated.ProcessIsTraced) // as the sanitizer of leaks does
	r := buildOrder(t, "-fsanitize="+*sanitize, "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O0")
	names := make(map[string][]string)
	for _, p := range r.ordered(t) {
		for _, options := range p.options {
			names[options] = append(names[options], p.name)
		}
	}
	for options, of := range names {
		t.Run(options, func(t *testing.T) {
			t.Parallel()
			all := strings.TrimSuffix("schedule=random,delay=100,"+options, ",")
			out, err := r.run(t, all, "", strings.Join(of, ","), "right", "1")
			assert.NoError(t, err, "CUDASIM=%s\n%s", all, out)
		})
	}
}
