package ci

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
		"a line":          {"echo 'ok one'; echo 'FAIL two: 1 is not 2'", "tests: FAIL two: 1 is not 2\n"},
		"a status":        {"echo 'ok one'; exit 3", "tests: FAIL tests: exit status 3: what was to come has not run\n"},
		"a crash":         {"echo 'ok one'; kill -SEGV $$", "tests: FAIL tests: exit status 139: what"},
		"no check":        {"true", "tests             0        0        0 "},
		"no line's end":   {"echo 'ok one'; printf 'ok tw'; exit 3", "tests: FAIL tests: exit status 3: what"},
		"after a failure": {"echo 'FAIL two: no'; kill -SEGV $$", "tests: FAIL tests: exit status 139: what"},
		"a NUL":           {"printf '\\000'; echo; echo 'FAIL two: no'", "tests: FAIL two: no\n"},
		"no executable":   {"exec ./missing", "tests: FAIL tests: exit status 127: what"},
		"no progress":     {"sleep 60", "tests: FAIL tests: no check had a result in "},
		"a child's":       {"sleep 60 & wait", "tests: FAIL tests: no check had a result in "},
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
sleep 60
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
	output, status = command(t, []string{"KIT_SECONDS=11", "OUT=" + out}, filepath.Join(there, "gpu"), "run")
	assert.Equal(t, 75, status, output)
	assert.NotContains(t, output, "FAIL", "no check had a result, but the time was short")
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

// A run that is killed, and leaves the process of its section, keeps the checks that have ended. If that happens twice in the
// same place, the section has failed, and the others run.
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
	lines := func(end string) int {
		text, _ := os.ReadFile(filepath.Join(folder, "results", "tests.running"))
		return strings.Count(string(text), end)
	}
	kill(has(filepath.Join(out, "report.txt"), "\nok one\n")) // what is to be brought back has it while the section runs
	for n := range 2 {
		kill(func() bool { return lines(" 1\n") == n+1 })
	}
	output, status := command(t, nil, gpu, "run")
	assert.Equal(t, 1, status, output)
	assert.Contains(t, output, "tests: FAIL tests: two runs of it ended with this script, before a check had a result\n")
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

	// A piece that changed on its way, and results that did.
	env = []string{"KIT_FOLDER=" + filepath.Join(there, "changed")}
	archive := filepath.Join(pieces, "2", "libcudf.tar.xz")
	whole, err := os.ReadFile(archive)
	require.NoError(t, err)
	for _, changed := range [][]byte{whole[:len(whole)-30], append(slices.Concat(whole[:len(whole)/2], []byte{whole[len(whole)/2] ^ 1}), whole[len(whole)/2+1:]...)} {
		require.NoError(t, os.WriteFile(archive, changed, 0o644))
		output, status = command(t, env, filepath.Join(pieces, "2", "visit"))
		assert.Equal(t, 2, status)
		assert.Contains(t, output, "libcudf.tar.xz cannot be unpacked\n")
	}
	require.NoError(t, os.WriteFile(archive, whole, 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(pieces, "results.tar.gz"), []byte("no archive"), 0o644))
	output, status = command(t, env, filepath.Join(pieces, "2", "visit"))
	assert.Equal(t, 1, status)
	assert.Contains(t, output, "results.tar.gz cannot be unpacked: all checks are made anew\n")

	output, status = command(t, nil, "./gpu", "pack", folder, pieces, "0")
	assert.NotZero(t, status)
	assert.Contains(t, output, " which no piece holds\n")

	require.NoError(t, os.WriteFile(filepath.Join(folder, "libcudf", "parts"), []byte("more libcudf/missing\n"), 0o644))
	output, status = command(t, nil, "./gpu", "pack", folder, pieces, "5")
	assert.NotZero(t, status, output)
}

// tiny has tests that are hard to follow from outside. Those of its ending variable end the process.
const tiny = `package tiny

import (
	"fmt"
	"os"
	"testing"
)

func TestGPU(t *testing.T)         {}
func TestGPUPrefix(t *testing.T)   { t.Parallel(); t.Run("sub", func(t *testing.T) {}) }
func TestGPUNoLine(t *testing.T)   { fmt.Print("no line's end") }
func TestGPUFails(t *testing.T)    { t.Error("this is why") }
func TestGPUSkipped(t *testing.T)  { t.Skip("no GPU") }
func TestGPUPretends(t *testing.T) { fmt.Println("--- PASS: TestGPUExits (0.00s)") }
func TestGPUExits(t *testing.T)    { os.Exit(3) }
func TestGPUPanics(t *testing.T)   { panic("on purpose") }
func TestOther(t *testing.T)       { t.Error("it was not asked for") }
`

func TestKitRunsTestBinaries(t *testing.T) {
	t.Parallel()
	run, err := os.ReadFile(filepath.Join("kit", "tests", "run"))
	require.NoError(t, err)
	folder := kit(t, map[string]string{"tests": strings.TrimPrefix(string(run), "#!/usr/bin/env bash\n")})
	steps(t, folder, "tests:first", "100", "tests", "100")
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "tests", name), []byte(text), 0o755))
	}
	write("devices", "#!/bin/sh\necho driver\n")
	write("first", "tiny.TestGPUNoLine\n")
	write("broken.test", "#!/bin/sh\necho 'a library is missing'; exit 127\n")
	source := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(source, "go.mod"), []byte("module tiny\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(source, "tiny_test.go"), []byte(tiny), 0o644))
	text, err := exec.Command("go", "test", "-C", source, "-c", "-vet=off", "-o", filepath.Join(folder, "tests", "tiny.test")).CombinedOutput()
	require.NoError(t, err, "%s", text)

	output, status := command(t, []string{"KIT_SECONDS=200"}, filepath.Join(folder, "gpu"), "run")
	assert.Equal(t, 1, status, output)
	section, err := os.ReadFile(filepath.Join(folder, "results", "tests.txt"))
	require.NoError(t, err)
	var results []string
	for line := range strings.Lines(string(section)) {
		if strings.HasPrefix(line, "ok ") || strings.HasPrefix(line, "FAIL ") {
			results = append(results, strings.TrimSuffix(line, "\n"))
		}
	}
	assert.ElementsMatch(t, []string{
		"FAIL broken: it does not list its tests: a library is missing",
		"ok tiny.TestGPU", "ok tiny.TestGPUPrefix", "ok tiny.TestGPUNoLine", "ok tiny.TestGPUPretends",
		"FAIL tiny.TestGPUFails: see below", "FAIL tiny.TestGPUSkipped: skipped",
		"FAIL tiny.TestGPUExits: it did not end before its process did: exit status 3",
		"FAIL tiny.TestGPUPanics: see below",
	}, results, "%s", section)
	assert.Contains(t, string(section), "this is why")
	assert.Less(t, strings.Index(string(section), "TestGPUNoLine"), strings.Index(string(section), "ok tiny.TestGPU\n"), "the part first is first")
}

// Results of the simulator, and of another commit, are not taken for those of this GPU.
func TestKitTellsWhereResultsAreFrom(t *testing.T) {
	t.Parallel()
	folder := kit(t, map[string]string{"tests": resumes, "libcudf": "echo 'ok other'"})
	steps(t, folder, "tests", "20", "libcudf", "20")
	gpu := filepath.Join(folder, "gpu")
	output, status := command(t, nil, gpu, "run")
	assert.Zero(t, status, output)
	assert.NotContains(t, output, "Results are of:")
	output, status = command(t, []string{"KIT_SIMULATED=", "STOP=b"}, gpu, "run")
	assert.Equal(t, 75, status, output)
	assert.Contains(t, output, "the results of the driver 'simulated' are now in results.simulated\n")
	assert.Contains(t, output, "tests             2        0        0 ")
	require.NoError(t, os.WriteFile(filepath.Join(folder, "commit"), []byte("def\n"), 0o644))
	output, status = command(t, []string{"KIT_SIMULATED="}, gpu, "run")
	assert.Zero(t, status, output)
	assert.Regexp(t, `Results are of:\ncommit abc, .*\ncommit def, .*\n`, output)
}

// A folder has one run at a time, and a run leaves no process.
func TestKitRunsAlone(t *testing.T) {
	t.Parallel()
	folder := kit(t, map[string]string{"tests": "echo 'ok one'; sleep 61.25"})
	steps(t, folder, "tests", "40")
	gpu := filepath.Join(folder, "gpu")
	cmd := exec.Command(gpu, "run")
	cmd.Env = append(os.Environ(), "KIT_SIMULATED=1", "OUT="+t.TempDir())
	output := filepath.Join(t.TempDir(), "output")
	file, err := os.Create(output)
	require.NoError(t, err)
	defer file.Close()
	cmd.Stdout = file
	require.NoError(t, cmd.Start())
	require.Eventually(t, func() bool { b, _ := os.ReadFile(output); return strings.Contains(string(b), "ok one") }, 30*time.Second, 10*time.Millisecond)
	second, status := command(t, nil, gpu, "run")
	assert.Equal(t, 2, status, second)
	assert.Contains(t, second, "another run is in progress in this folder\n")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_ = cmd.Wait()
	assert.Equal(t, 143, cmd.ProcessState.ExitCode())
	assert.Eventually(t, func() bool {
		left, _ := exec.Command("sh", "-c", "for p in /proc/[0-9]*; do [ \"$(readlink $p/cwd)\" = \"$1\" ] || [ \"$(readlink $p/cwd)\" = \"$1/tests\" ] && echo $p; done", "sh", folder).Output()
		return len(left) == 0
	}, 20*time.Second, 50*time.Millisecond)
}

// What cannot be brought back is said, and what is there stays whole.
func TestKitSaysWhatDoesNotComeBack(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "out")
	folder := kit(t, map[string]string{
		"tests":   "echo 'ok one'; head -c 9000000 /dev/urandom >$KIT_OUT/large; (while sleep 0.01; do echo more >>$KIT_OUT/grows; done) & echo $! >$KIT_OUT/pid",
		"share":   "head -c 3000000 /dev/zero | tr '\\000' x; echo; echo 'ok two'",
		"libcudf": "echo 'ok three'; [[ -z ${LOST:-} ]] || { rm -r $OUT; echo >$OUT; }",
	})
	steps(t, folder, "tests", "20", "share", "20", "libcudf", "20")
	gpu := filepath.Join(folder, "gpu")
	output, status := command(t, []string{"OUT=" + out}, gpu, "run")
	pid, err := os.ReadFile(filepath.Join(folder, "results", "tests.files", "pid"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = exec.Command("kill", strings.TrimSpace(string(pid))).Run() })
	assert.Zero(t, status, output[max(0, len(output)-1000):])
	list, err := exec.Command("tar", "-tzf", filepath.Join(out, "results.tar.gz")).Output()
	require.NoError(t, err)
	assert.Contains(t, string(list), "results/tests.txt\n")
	assert.NotContains(t, string(list), "large")
	report, err := os.ReadFile(filepath.Join(out, "report.txt"))
	require.NoError(t, err)
	assert.Less(t, len(report), 2_000_000)
	assert.Contains(t, string(report), "(the rest is left out: ")
	assert.Contains(t, string(report), "ok three\n")

	output, status = command(t, []string{"OUT=" + out, "LOST=1"}, gpu, "again", "libcudf")
	assert.Equal(t, 1, status)
	assert.Contains(t, output, "does not take the results; they are in ")
}
