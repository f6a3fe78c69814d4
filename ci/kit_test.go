package ci

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// kit makes a folder as ci/gpu build does, with sections that are scripts of the test.
func kit(t *testing.T, sections map[string]string) string {
	folder := t.TempDir()
	for _, name := range []string{"gpu", "gotest"} {
		script, err := os.ReadFile(filepath.Join("kit", name))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), script, 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "commit"), []byte("abc\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "arrowdevice"), []byte("#!/bin/sh\necho the doctor says\n"), 0o755))
	for name, run := range sections {
		require.NoError(t, os.Mkdir(filepath.Join(folder, name), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, name, "run"), []byte("#!/usr/bin/env bash\n"+run), 0o755))
	}
	return folder
}

// command runs a script, with variables in front of those of the test, and returns its output and its exit status.
func command(t *testing.T, env []string, name string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(append(os.Environ(), "KIT_SIMULATED=1", "KIT_SECONDS=60"), env...)
	output, err := cmd.CombinedOutput()
	require.NotNil(t, cmd.ProcessState, "%v", err)
	return string(output), cmd.ProcessState.ExitCode()
}

func TestKitCountsChecks(t *testing.T) {
	t.Parallel()
	folder := kit(t, map[string]string{
		"tests": "echo 'ok one'; echo 'ok two'; echo 'other text'",
		"rules": "echo 'skip three: no GPU'; echo 'ok four'",
	})
	steps(t, folder, "tests", "20", "rules", "20")
	output, status := command(t, nil, filepath.Join(folder, "gpu"), "run")
	assert.Zero(t, status, output)
	assert.Contains(t, output, "tests             2        0        0 ")
	assert.Contains(t, output, "rules             1        0        1 ")
	assert.Contains(t, output, "3 passed, 0 failed, 1 skipped\n")
}

// A section fails by a line, by its exit status, and by saying nothing; those after it still run.
func TestKitFails(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ run, says string }{
		"a line":        {"echo 'ok one'; echo 'FAIL two: 1 is not 2'", "tests: FAIL two: 1 is not 2\n"},
		"a status":      {"echo 'ok one'; exit 3", "tests: FAIL tests: exit status 3\n"},
		"a crash":       {"echo 'ok one'; kill -SEGV $$", "tests: FAIL tests: exit status 139\n"},
		"no check":      {"true", "tests             0        0        0 "},
		"no executable": {"exec ./missing", "tests: FAIL tests: exit status 127\n"},
		"no progress":   {"sleep 60", "tests: FAIL tests: no check ended in "},
		"a child's":     {"sleep 60 & wait", "tests: FAIL tests: no check ended in "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := kit(t, map[string]string{"tests": row.run, "libcudf": "echo 'ok fast'"})
			steps(t, folder, "tests", "3", "libcudf", "20")
			output, status := command(t, nil, filepath.Join(folder, "gpu"), "run")
			assert.Equal(t, 1, status, output)
			assert.Contains(t, output, row.says)
			assert.Contains(t, output, "libcudf           1        0        0 ")
		})
	}
}

// steps replaces the steps of a kit.
func steps(t *testing.T, folder string, list ...string) {
	t.Helper()
	path := filepath.Join(folder, "gpu")
	script, err := os.ReadFile(path)
	require.NoError(t, err)
	before, after, ok := strings.Cut(string(script), "steps=(\n")
	require.True(t, ok)
	_, after, ok = strings.Cut(after, ")\n")
	require.True(t, ok)
	require.NoError(t, os.WriteFile(path, []byte(before+"steps=("+strings.Join(list, " ")+")\n"+after), 0o755))
}

// A section makes the checks without a result, and tells by its status that some are left.
const resumes = `for check in a b c d; do
	grep -qx "$check" "$KIT_DONE" && continue
	[[ -z $KIT_FIRST || $check == c ]] || continue
	echo "ok $check (a note)"
	[[ $check != ${STOP:-} ]] || exit 75
done
`

func TestKitGoesOn(t *testing.T) {
	t.Parallel()
	folder := kit(t, map[string]string{"tests": resumes, "rules": "echo 'ok rule'"})
	steps(t, folder, "tests:first", "20", "rules", "20", "tests", "20")
	gpu := filepath.Join(folder, "gpu")
	output, status := command(t, []string{"STOP=b"}, gpu, "run")
	assert.Equal(t, 75, status, output)
	assert.Less(t, strings.Index(output, "ok c "), strings.Index(output, "ok rule"), "the part first is before other sections")
	assert.Contains(t, output, "tests             3        0        0 ")
	assert.Contains(t, output, "to go on\n")
	assert.Contains(t, output, "Checks are left: the same command goes on.\n")
	output, status = command(t, nil, gpu, "run")
	assert.Zero(t, status, output)
	assert.Contains(t, output, "ok d ")
	assert.NotContains(t, output, "ok a ")
	assert.Contains(t, output, "tests             4        0        0 ")
	output, status = command(t, nil, gpu, "run")
	assert.Zero(t, status, output)
	assert.NotContains(t, output, "ok d", "nothing is left")
	output, status = command(t, nil, gpu, "again", "tests")
	assert.Zero(t, status, output)
	assert.Contains(t, output, "ok a ")
	assert.Contains(t, output, "tests             4        0        0 ")
}

// The time of a run is that of all sections together; what has no result yet has one after the next run.
func TestKitKeepsToItsTime(t *testing.T) {
	t.Parallel()
	slow := `for check in a b; do
	grep -qx "$check" "$KIT_DONE" && continue
	echo "ok $check"
	sleep 60
done
`
	folder := kit(t, map[string]string{"speed": slow, "share": "echo 'ok one'"})
	gpu, out := filepath.Join(folder, "gpu"), t.TempDir()
	began := time.Now()
	output, status := command(t, []string{"KIT_SECONDS=11", "OUT=" + out}, gpu, "run")
	assert.Equal(t, 75, status, output)
	assert.Less(t, time.Since(began), 40*time.Second)
	assert.Contains(t, output, "speed             1        0        0 ")
	assert.Contains(t, output, "== share: no time is left in this run\n")
	assert.Contains(t, output, "not run yet: share\n")
	report, err := os.ReadFile(filepath.Join(out, "report.txt"))
	require.NoError(t, err)
	assert.Contains(t, string(report), "\nok a\n")

	// On a machine with nothing but the results.
	there := kit(t, map[string]string{"speed": slow, "share": "echo 'ok one'"})
	text, err := exec.Command("tar", "-C", there, "-xzf", filepath.Join(out, "results.tar.gz")).CombinedOutput()
	require.NoError(t, err, "%s", text)
	output, status = command(t, []string{"KIT_SECONDS=11", "OUT=" + out}, filepath.Join(there, "gpu"), "run")
	assert.Equal(t, 75, status, output)
	assert.Contains(t, output, "\nok b\n")
	assert.NotContains(t, output, "\nok a\n")
}

// Sections that ran one by one are in one report.
func TestKitReports(t *testing.T) {
	t.Parallel()
	folder := kit(t, map[string]string{"tests": "echo 'ok one'; echo 'text of tests'", "rules": "echo 'FAIL two: no'"})
	gpu := filepath.Join(folder, "gpu")
	output, status := command(t, nil, gpu, "run", "tests")
	assert.Equal(t, 75, status, output)
	assert.Contains(t, output, "not run yet: rules\n")
	_, status = command(t, nil, gpu, "run", "rules")
	assert.Equal(t, 1, status)
	output, status = command(t, nil, gpu, "report")
	assert.Equal(t, 1, status)
	for _, text := range []string{
		"commit: abc\n", "simulated driver", "== doctor\nthe doctor says\n", "text of tests\n", "1 passed, 1 failed, 0 skipped\n", "== rules\n", "FAIL two: no\n",
	} {
		assert.Contains(t, output, text)
	}
	_, status = command(t, nil, gpu, "run", "speed")
	assert.Equal(t, 2, status, "this folder has no such section")
}

// A run that is killed keeps the checks that have ended. If that happens twice in the same place, the section has failed,
// and the others run.
func TestKitGoesOnAfterItWasKilled(t *testing.T) {
	t.Parallel()
	folder := kit(t, map[string]string{"tests": "grep -qx one $KIT_DONE || echo 'ok one'; sleep 60", "libcudf": "echo 'ok fast'"})
	steps(t, folder, "tests", "30", "libcudf", "20")
	gpu, out := filepath.Join(folder, "gpu"), t.TempDir()
	kill := func(until func() bool) {
		cmd := exec.Command(gpu, "run")
		cmd.Env = append(os.Environ(), "KIT_SIMULATED=1", "OUT="+out)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		require.NoError(t, cmd.Start())
		require.Eventually(t, until, 30*time.Second, 10*time.Millisecond)
		require.NoError(t, syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL))
		_ = cmd.Wait()
	}
	has := func(path, text string) func() bool {
		return func() bool { b, _ := os.ReadFile(path); return strings.Contains(string(b), text) }
	}
	kill(has(filepath.Join(out, "report.txt"), "\nok one\n")) // what is to be brought back has it while the section runs
	kill(has(filepath.Join(folder, "results", "tests.running"), "1\n"))
	output, status := command(t, nil, gpu, "run")
	assert.Equal(t, 1, status, output)
	assert.Contains(t, output, "tests: FAIL tests: a run of it ended with this script, before a check ended\n")
	assert.Contains(t, output, "libcudf           1        0        0 ")
}

// Each piece is a folder that can be used alone, and none is larger than asked.
func TestKitIsPacked(t *testing.T) {
	t.Parallel()
	folder := kit(t, map[string]string{"tests": "echo 'ok one'", "rules": "echo 'ok two'", "libcudf": "wc large/*"})
	steps(t, folder, "tests", "20", "rules", "20", "libcudf", "20")
	large := make([]byte, 800_000)
	for i, path := range []string{"rules/large", "libcudf/large/a", "libcudf/large/b"} {
		_, err := rand.NewChaCha8([32]byte{byte(i)}).Read(large) // which nothing compresses
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, path)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, path), large, 0o644))
	}
	require.NoError(t, os.WriteFile(filepath.Join(folder, "libcudf", "parts"), []byte("more libcudf/large/b\n"), 0o644))
	pieces, there := t.TempDir(), filepath.Join(t.TempDir(), "there")
	output, status := command(t, nil, "./gpu", "pack", folder, pieces, "1")
	require.Zero(t, status, output)
	in := func(piece string) (names []string) {
		files, err := os.ReadDir(filepath.Join(pieces, piece))
		require.NoError(t, err, output)
		for _, f := range files {
			names = append(names, f.Name())
		}
		return names
	}
	assert.Equal(t, []string{"base.tar.xz", "rules.tar.xz", "tests.tar.xz", "visit"}, in("1"))
	assert.Equal(t, []string{"base.tar.xz", "libcudf.tar.xz", "visit"}, in("2"))
	assert.Equal(t, []string{"base.tar.xz", "libcudf-more.tar.xz", "visit"}, in("3"))

	env := []string{"KIT_FOLDER=" + there}
	output, status = command(t, env, filepath.Join(pieces, "2", "visit"), "run", "libcudf")
	assert.Equal(t, 1, status, output)
	assert.NoFileExists(t, filepath.Join(there, "libcudf", "large", "b"))
	alone := []string{"KIT_FOLDER=" + filepath.Join(there, "alone")}
	output, _ = command(t, alone, filepath.Join(pieces, "3", "visit"))
	assert.NotContains(t, output, "FAIL", "a part without the rest of its section has no checks")
	_, _ = command(t, env, filepath.Join(pieces, "3", "visit"), "report")
	assert.FileExists(t, filepath.Join(there, "libcudf", "large", "a"), "a part comes on top")
	assert.FileExists(t, filepath.Join(there, "libcudf", "large", "b"))
	output, status = command(t, env, filepath.Join(pieces, "1", "visit"))
	assert.Equal(t, 1, status, output)
	assert.Contains(t, output, "tests             1        0        0 ")
	assert.Contains(t, output, "libcudf           0        0        0 ", "the result of before")

	env = []string{"KIT_FOLDER=" + filepath.Join(there, "new")}
	require.NoError(t, os.WriteFile(filepath.Join(pieces, "1", "rules.tar.xz"), large[:1000], 0o644))
	output, status = command(t, env, filepath.Join(pieces, "1", "visit"))
	assert.Equal(t, 2, status)
	assert.Contains(t, output, "rules.tar.xz cannot be unpacked\n")

	output, status = command(t, nil, "./gpu", "pack", folder, pieces, "0")
	assert.NotZero(t, status)
	assert.Contains(t, output, " which no piece holds\n")
}
