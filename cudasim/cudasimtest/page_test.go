//go:build linux && cgo

package cudasimtest_test

import (
	"bytes"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/cudasim/cudasimtest"
	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

var runs = flag.Int("runs", 20, "how often each program with a mistake runs; with -short, a tenth of it")

// mistakes are the programs of the rows of the page.
var mistakes = map[string]func(*program){
	"no `WaitOn`":                      withoutWaitOn,
	"`WaitOn` of another stream":       wrongStream,
	"read on another GPU":              anotherGPU,
	"no `UsedOn` before the release":   withoutUsedOn,
	"freed early, on another stream":   freedEarly,
	"shareable memory freed early":     shareableFreedEarly,
	"filled, and no `WithEvent`":       withoutWithEvent,
	"an event that was never recorded": neverRecorded,
	"page-locked source given back":    sourceFreed,
	"page-locked memory read early":    readEarly,
	crashing:                           dereferenced,
	"a batch not released":             notReleased,
}

// row is one row of the table in docs/cuda.md.
type row struct{ mistake, wrong, right, says string }

// table returns the rows of the section "What each mistake says", and the block above them, with … for the lines of
// its program.
func table(t *testing.T) (rows []row, block string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/cuda.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(page), "\n## What each mistake says\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) == 4 && cells[0] != "mistake" {
			rows = append(rows, row{cells[0], cells[1], cells[2], cells[3]})
		}
	}
	block = regexp.MustCompile("(?s)```\n(.*?)```").FindStringSubmatch(section)[1]
	return rows, regexp.MustCompile(`example\.com\S+ \(\S+\)`).ReplaceAllString(block, "… (…)")
}

func TestEachMistakeSaysWhatThePageSays(t *testing.T) {
	rows, block := table(t)
	missing := maps.Clone(mistakes)
	for _, row := range rows {
		delete(missing, row.mistake)
		t.Run(strings.ReplaceAll(row.mistake, "`", ""), func(t *testing.T) {
			require.Contains(t, mistakes, row.mistake, "the table has a program for each row")
			hasLines(t, row)
			says := code(row.says)
			require.NotEmpty(t, says)
			test := failuresOf(t, row.mistake)
			for range times() {
				wrong := strings.Join(test(true), "\n\n")
				for _, text := range says {
					assert.Regexp(t, pattern(text), flat(wrong))
				}
				if row == rows[0] {
					assert.Regexp(t, pattern(block), flat(wrong))
				}
				assert.Empty(t, test(false), "the right program")
			}
		})
	}
	assert.Empty(t, slices.Collect(maps.Keys(missing)), "programs without a row")
}

func times() int {
	if testing.Short() {
		return max(1, *runs/10)
	}
	return *runs
}

// crashing is a program that ends its process.
const crashing = "a device pointer used on the host"

// failuresOf returns a function that runs a program in a test of two GPUs, wrong or right, and returns the
// failures of that test.
func failuresOf(t *testing.T, mistake string) func(wrong bool) []string {
	if mistake == crashing {
		return func(wrong bool) []string { return crash(t, wrong) }
	}
	return func(wrong bool) []string {
		if wrong {
			defer cudasimtest.SettleTime(100 * time.Millisecond)()
		}
		return failures(t, func(p *program) {
			p.wrong = wrong
			mistakes[mistake](p)
		}, cudasim.Options{Devices: 2})
	}
}

// doCrash is a variable of the environment: whether TestCrash runs the wrong or the right program.
const doCrash = "CUDASIMTEST_CRASH"

// crash runs TestCrash in another process, and returns what it printed if it failed.
func crash(t *testing.T, wrong bool) []string {
	t.Helper()
	test := emulated.Command(os.Args[0], "-test.run=^TestCrash$")
	test.Env = append(os.Environ(), doCrash+"="+map[bool]string{true: "wrong", false: "right"}[wrong])
	out, err := test.CombinedOutput()
	if err != nil {
		return []string{string(out)}
	}
	return nil
}

func TestCrash(t *testing.T) {
	which := os.Getenv(doCrash)
	if which == "" {
		t.Skip("run by the test of the page")
	}
	assert.Empty(t, failures(t, func(p *program) {
		p.wrong = which == "wrong"
		mistakes[crashing](p)
	}, cudasim.Options{}))
}

// A read that is not declared sees garbage before the host has waited.
func TestAnEarlyReadSeesGarbage(t *testing.T) {
	sim := cudasimtest.Start(t, cudasimtest.WithOptions(cudasim.Options{Lazy: true}))
	p := &program{t: t, sim: sim, gpu: must(cudaalloc.Open(0))}
	s := p.stream(p.gpu)
	mem := must(hostpinned.NewAllocator(p.gpu))
	m, to := must(p.gpu.Allocate(ctx, size, s)), mem.Allocate(size)
	p.fill(m.Ptr(), s)
	p.copyTo(pointer(to), m.Ptr(), s)
	assert.Equal(t, bytes.Repeat([]byte{0xa5}, size), to)
	p.must(s.Synchronize(ctx))
	assert.Equal(t, bytes.Repeat([]byte{1}, size), to)
	p.must(m.Free(s))
	mem.Free(to)
}

// Without Drain, work may touch memory that was freed, which ends the context.
func TestWorkAfterTheFree(t *testing.T) {
	defer cudasimtest.SettleTime(100 * time.Millisecond)()
	got := failures(t, func(p *program) {
		a, s := must(p.gpu.NewStream()), must(p.gpu.NewStream())
		m := must(p.gpu.Allocate(ctx, size, a))
		p.must(a.Synchronize(ctx))
		p.fill(m.Ptr(), s)
		p.must(m.Free(a))
		p.must(a.Synchronize(ctx))
		p.sim.Drain()
		assert.ErrorIs(t, s.Synchronize(ctx), cudaalloc.IllegalAddress)
		_ = errors.Join(a.Close(), s.Close())
	}, cudasim.Options{Lazy: true})
	assert.Regexp(t, "cuMemsetD8Async touched memory at 0x.*, from cuMemAllocFromPoolAsync, after it was freed;\\s+it was queued at \\S+fill ", strings.Join(got, "\n"))
}

// hasLines fails unless the program of a row has its lines, in order.
func hasLines(t *testing.T, row row) {
	t.Helper()
	source, err := os.ReadFile("mistakes_test.go")
	require.NoError(t, err)
	name := strings.TrimPrefix(filepath.Ext(runtime.FuncForPC(reflect.ValueOf(mistakes[row.mistake]).Pointer()).Name()), ".")
	_, program, found := strings.Cut(string(source), "\nfunc "+name+"(")
	require.True(t, found, name)
	program, _, _ = strings.Cut(program, "\n}\n")
	branches := regexp.MustCompile(`(?s)if p\.wrong \{\n(.*?)\n\t\} else \{\n(.*?)\n\t\}`).FindStringSubmatchIndex(program)
	require.NotNil(t, branches, "%s is right or wrong", name)
	before, after := program[:branches[0]], program[branches[1]:]
	assert.Regexp(t, lines(row.wrong), before+program[branches[2]:branches[3]]+after, "the wrong program")
	assert.Regexp(t, lines(row.right), before+program[branches[4]:branches[5]]+after, "the right program")
}

var quoted = regexp.MustCompile("`([^`]+)`")

// code returns the code in a cell.
func code(cell string) (all []string) {
	for _, match := range quoted.FindAllStringSubmatch(cell, -1) {
		all = append(all, match[1])
	}
	return all
}

// lines matches a text that has the code in a cell, in order.
func lines(cell string) string {
	var all []string
	for _, line := range code(cell) {
		all = append(all, regexp.QuoteMeta(line))
	}
	return "(?s)" + strings.Join(all, ".*")
}

// pattern matches a flat text that has the words of a text, in which … stands for any.
func pattern(text string) string {
	return strings.ReplaceAll(regexp.QuoteMeta(flat(text)), "…", ".*?")
}

// flat is a text as one line.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }
