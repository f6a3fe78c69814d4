package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// tester runs the tests of mutants.
type tester struct {
	dir     string // for overlays
	timeout time.Duration
}

// verdict is the outcome of a mutant.
type verdict struct {
	killer string // the test that failed; "" if none did
	took   time.Duration
	err    error
}

// suites are the packages that are searched, each with those whose tests may kill its mutants: one after the other, until
// one is red. The CPU, in package device, has nothing to wait for.
var suites = map[string][]string{
	"internal/cuda":         {"internal/cuda", "internal/gpu", "memory/cudaalloc", "cdevice", "memory/hostpinned"},
	"internal/sizeclass":    {"internal/sizeclass", "internal/gpu", "memory/cudaalloc", "memory/hostpinned", "cdevice"},
	"internal/gpu":          {"internal/gpu", "memory/cudaalloc", "cdevice", "memory/hostpinned"},
	"memory/cudaalloc":      {"memory/cudaalloc", "internal/gpu", "cdevice", "memory/hostpinned"},
	"memory/hostpinned":     {"memory/hostpinned"},
	"internal/tree":         {"internal/tree", "cdevice"},
	"internal/copyplan":     {"internal/copyplan", "cdevice"},
	"internal/validate":     {"internal/validate", "cdevice"},
	"internal/cstruct":      {"internal/cstruct", "cdevice"},
	"internal/items":        {"cdevice"},
	"cdevice":               {"cdevice"},
	"interop/cudaarray":     {"interop/cudaarray"},
	"interop/dlpack":        {"interop/dlpack"},
	"interop/triton":        {"interop/triton"},
	"share":                 {"share", "flight"},
	"flight":                {"flight"},
	"internal/flightdata":   {"internal/flightdata", "flight"},
	"internal/flightticket": {"internal/flightticket", "flight"},
	"internal/ipcmessage":   {"internal/ipcmessage", "flight"},
}

const (
	// first are the tests that kill most mutants, and take seconds.
	first = "^TestGPU|Wait"
	// last are tests that take seconds each, and all together as long as the others.
	last = "^TestGPUContract$|^TestEachCallFails$|^TestFreesWaitWhile|^TestOutOfMemorySays|^TestBusyGPU|" +
		"^TestAllocateWaitsWhere|^TestIdleMemory|^TestRandomContents$"
	// never are tests that wait for nothing of a device: they hammer callbacks.
	never = "Hammer|^Example"
)

// errBuild is a mutant that is no program.
var errBuild = errors.New("it does not compile")

// build makes the test binary of a package, with an overlay unless that is "".
func (t *tester) build(ctx context.Context, suite, dir, overlay string) (binary string, err error) {
	binary = filepath.Join(dir, path.Base(suite)+".test")
	args := []string{"test", "-c", "-vet=off", "-o", binary}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	out, err := exec.CommandContext(ctx, "go", append(args, "./"+suite)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %w\n%s", errBuild, err, out)
	}
	return binary, nil
}

// runTests runs a test binary until one test fails, starting with the tests that kill the most
// mutants. It returns their output.
func (t *tester) runTests(ctx context.Context, suite, binary string) (out []byte, passed bool, err error) {
	for _, choice := range [][]string{
		{"-test.run", first, "-test.skip", last + "|" + never}, {"-test.skip", first + "|" + last + "|" + never}, {"-test.run", last, "-test.skip", never},
	} {
		args := slices.Concat([]string{"-test.v", "-test.short", "-test.failfast", "-test.timeout", t.timeout.String()}, choice)
		limited, stop := context.WithTimeout(ctx, t.timeout+time.Minute) // for a process that cannot end itself
		cmd := exec.CommandContext(limited, binary, args...)
		cmd.Dir = filepath.FromSlash(suite)
		out, err = cmd.CombinedOutput()
		stop()
		var exit *exec.ExitError
		switch {
		case ctx.Err() != nil:
			return out, false, ctx.Err()
		case errors.As(err, &exit):
			return out, false, nil
		case err != nil:
			return out, false, err
		}
	}
	return out, true, nil
}

// suite builds and runs the tests of a package.
func (t *tester) suite(ctx context.Context, suite, dir, overlay string) (out []byte, passed bool, err error) {
	binary, err := t.build(ctx, suite, dir, overlay)
	if err != nil {
		return nil, false, err
	}
	defer os.Remove(binary)
	return t.runTests(ctx, suite, binary)
}

// baseline fails unless the tests pass as they are: every mutant would be killed.
func (t *tester) baseline(ctx context.Context, mutants []*mutant) error {
	var done []string
	for _, m := range mutants {
		for _, suite := range suites[path.Dir(m.file)] {
			if slices.Contains(done, suite) {
				continue
			}
			done = append(done, suite)
			out, passed, err := t.suite(ctx, suite, t.dir, "")
			if err != nil {
				return err
			}
			if !passed {
				return fmt.Errorf("%s is red without a mutant: %s\n%s", suite, killerOf(out), out)
			}
		}
	}
	return nil
}

// overlay writes the mutant's file, and the list of one file that the build reads.
func (t *tester) overlay(m *mutant) (list string, err error) {
	dir, err := os.MkdirTemp(t.dir, "")
	if err != nil {
		return "", err
	}
	original, err := filepath.Abs(m.file)
	if err != nil {
		return "", err
	}
	mutated := filepath.Join(dir, path.Base(m.file))
	if err := os.WriteFile(mutated, m.content, 0o600); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": map[string]string{original: mutated}})
	if err != nil {
		return "", err
	}
	list = filepath.Join(dir, "overlay.json")
	return list, os.WriteFile(list, text, 0o600)
}

// test runs the suites of a mutant's package until one is red.
func (t *tester) test(ctx context.Context, m *mutant) (v verdict) {
	start := time.Now()
	defer func() { v.took = time.Since(start) }()
	list, err := t.overlay(m)
	if err != nil {
		return verdict{err: err}
	}
	for _, suite := range suites[path.Dir(m.file)] {
		out, passed, err := t.suite(ctx, suite, filepath.Dir(list), list)
		if err != nil {
			return verdict{err: err}
		}
		if !passed {
			return verdict{killer: killerOf(out)}
		}
	}
	return verdict{}
}

var (
	failure  = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	started  = regexp.MustCompile(`(?m)^=== (?:RUN|CONT|NAME)\s+(\S+)`)
	timedOut = regexp.MustCompile(`(?m)^panic: test timed out`)
)

// killerOf is the name of the first test that failed, with its subtest, and how. Where
// the process ended, it is the test that began last.
func killerOf(out []byte) string {
	first := failure.FindSubmatch(out)
	if first == nil {
		how := "crash"
		if timedOut.Match(out) {
			how = "timeout"
		}
		last := "before any test"
		for _, name := range started.FindAllSubmatch(out, -1) {
			last = string(name[1])
		}
		return last + " (" + how + ")"
	}
	name := string(first[1])
	for _, next := range failure.FindAllSubmatch(out, -1)[1:] { // a test stands before its subtests
		if !strings.HasPrefix(string(next[1]), name+"/") {
			break
		}
		name = string(next[1])
	}
	if bytes.Contains(out, []byte("rules violated:")) {
		name += " (violation)"
	}
	return name
}
