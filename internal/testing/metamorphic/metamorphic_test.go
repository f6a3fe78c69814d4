package metamorphic

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var (
	seedFlag   = flag.Uint64("seed", 1, "the seed of the first program; 0: a new one")
	countFlag  = flag.Int("programs", 0, "how many programs, or how often the one of -program; 0: for the time of -for")
	forFlag    = flag.Duration("for", 0, "how long programs run; 0: 30 s, 15 s with -short")
	opsFlag    = flag.Int("ops", 120, "operations of a program")
	fileFlag   = flag.String("program", "", "a file with a program, to run it instead of those of seeds")
	reduceFlag = flag.Bool("reduce", true, "make a program that fails smaller")
	verbsFlag  = flag.String("verbs", "", "a regular expression: only operations whose names match it")
	worldsFlag = flag.String("worlds", "", "a regular expression: only worlds whose names match it")
)

// TestWorker does the work of another process of the tests.
func TestWorker(t *testing.T) {
	text := os.Getenv(WorkVariable)
	if text == "" {
		t.Skip("it does the work of other tests, in processes of their own")
	}
	var w Work
	require.NoError(t, json.Unmarshal([]byte(text), &w))
	if s := Do(t, w); s.Failure != nil {
		t.Fatal(s.Failure)
	}
}

// TestPrograms runs random programs in all worlds, in a process of their own. A failure is made smaller, and printed as a program.
func TestPrograms(t *testing.T) {
	w := Work{Seed: *seedFlag, Count: *countFlag, For: *forFlag, Ops: *opsFlag, Verbs: *verbsFlag, Worlds: *worldsFlag}
	if *fileFlag != "" {
		text, err := os.ReadFile(*fileFlag)
		require.NoError(t, err)
		w.Programs, w.Repeat = []string{string(text)}, *countFlag
	}
	if w.Seed == 0 && len(w.Programs) == 0 {
		w.Seed = uint64(time.Now().UnixNano()) % 1e12
	}
	if w.For == 0 && w.Count == 0 {
		w.For = 30 * time.Second
		if testing.Short() {
			w.For /= 2
		}
	}
	s, out := process(t, w, nil)
	t.Logf("%d programs from seed %d on", s.Done, w.Seed)
	report(t, s, out)
}

// TestCorpus runs the programs that have failed once, and some that use much, in all worlds.
func TestCorpus(t *testing.T) {
	files, err := filepath.Glob("testdata/corpus/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	var w Work
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		w.Programs = append(w.Programs, string(text))
	}
	s, out := process(t, w, nil)
	report(t, s, out)
	if !t.Failed() {
		assert.Equal(t, len(files), s.Done)
	}
}

// process does work in another process, and returns what has happened and what it printed.
func process(t *testing.T, w Work, environment []string) (s State, out string) {
	t.Helper()
	w.State = filepath.Join(t.TempDir(), "state")
	text, err := json.Marshal(w)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), w.For+10*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestWorker$", "-test.timeout=0")
	c.Env = append(append(os.Environ(), WorkVariable+"="+string(text), "GORACE=halt_on_error=1"), environment...)
	var printed bytes.Buffer
	c.Stdout, c.Stderr = &printed, &printed
	failed := c.Run()
	if state, err := os.ReadFile(w.State); err == nil {
		require.NoError(t, json.Unmarshal(state, &s))
	}
	if failed != nil && s.Failure == nil {
		s.Failure = &Failure{World: s.World, Step: "the process", Want: "its end", Got: failed.Error()}
	}
	return s, printed.String()
}

// report fails the test with the smallest program that still fails.
func report(t *testing.T, s State, out string) {
	t.Helper()
	if s.Failure == nil {
		require.True(t, s.Complete, out)
		return
	}
	t.Errorf("%v\n%s", s.Failure, ending(out))
	p, err := Parse(s.Program)
	require.NoError(t, err)
	t.Logf("the program, seed %d of commit %s:\n%s", p.Seed, commit(), s.Program)
	if !*reduceFlag {
		return
	}
	quick := []string{QuickVariable + "=1"}
	only := Work{Worlds: "^" + quoteMeta(s.World) + "$", Repeat: 3}
	if s.Failure.Step == "the errors" {
		only.Worlds = "" // they are compared
	}
	began := time.Now()
	last := s
	less := Reduce(p, func(p Program) bool {
		if time.Since(began) > 5*time.Minute {
			return false
		}
		only.Programs = []string{p.String()}
		s, _ := process(t, only, quick)
		if s.Failure != nil {
			last = s
		}
		return s.Failure != nil
	})
	t.Logf("%v\nby %d of %d operations, which as a row of testdata/corpus are\n\n%s\nin Go\n\n%s\nand again by\n\n\tgo test ./internal/testing/metamorphic -run TestPrograms -seed %d -programs 1 -ops %d -verbs '%s' -worlds '%s' # at %s",
		last.Failure, len(less.Ops), len(p.Ops), less, Source(less, last.World), p.Seed, *opsFlag, *verbsFlag, only.Worlds, commit())
}

func quoteMeta(s string) string {
	return strings.NewReplacer(".", `\.`, "(", `\(`, ")", `\)`, "'", ".").Replace(s)
}

// ending is the last part of an output.
func ending(out string) string {
	const most = 8000
	if len(out) <= most {
		return out
	}
	return out[:most/2] + "\n...\n" + out[len(out)-most/2:]
}

// commit names the commit of the working tree.
func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "an unknown commit"
	}
	return strings.TrimSpace(string(out))
}

func TestTextOfPrograms(t *testing.T) {
	for seed := range uint64(50) {
		p := Generate(seed, 40, every)
		again, err := Parse(p.String())
		require.NoError(t, err)
		assert.Equal(t, p, again)
	}
	_, err := ParseOp("b1 slice b2")
	assert.Error(t, err)
}

func TestReduce(t *testing.T) {
	fails := func(p Program) bool {
		text := fmt.Sprint(p)
		return strings.Contains(text, "= slice(") && strings.Contains(text, "= export(")
	}
	var p Program
	for seed := uint64(1); !fails(p); seed++ {
		p = Generate(seed, 60, every)
	}
	less := Reduce(p, fails)
	assert.True(t, fails(less))
	assert.LessOrEqual(t, len(less.Ops), 8, less.String())
}

// TestSource compiles programs as they are printed, and runs one.
func TestSource(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles programs, which do not depend on how the tests were compiled")
	}
	dir := t.TempDir()
	replace := map[string]string{}
	here, err := os.Getwd()
	require.NoError(t, err)
	first, err := os.ReadFile("testdata/corpus/first.txt")
	require.NoError(t, err)
	for seed := range uint64(20) {
		file := filepath.Join(dir, fmt.Sprintf("%d_test.go", seed))
		p := Generate(seed, 80, every)
		if seed == 0 {
			p, err = Parse(string(first))
			require.NoError(t, err)
		}
		text := Source(p, "cpu")
		text = strings.NewReplacer("TestReplay", fmt.Sprintf("TestReplay%d", seed), "program", fmt.Sprintf("program%d", seed), "ctx", fmt.Sprintf("ctx%d", seed)).Replace(text)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		replace[filepath.Join(here, "replay", filepath.Base(file))] = file
	}
	overlay := filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, text, 0o600))
	binary := filepath.Join(dir, "replay")
	out, err := exec.Command("go", "test", "-c", "-o", binary, "-vet=off", "-ldflags=-w", "-overlay", overlay, "./replay").CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(binary, "-test.run=^TestReplay0$").CombinedOutput()
	require.NoError(t, err, "%s", out)
}
