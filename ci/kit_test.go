package ci

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// kit makes a folder as ci/gpu build does, with sections that are scripts of the test.
func kit(t *testing.T, sections map[string]string) string {
	folder := t.TempDir()
	script, err := os.ReadFile("gpu")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "gpu"), script, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "commit"), []byte("abc\n"), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "arrowdevice"), []byte("#!/bin/sh\necho the doctor says\n"), 0o755))
	for name, run := range sections {
		require.NoError(t, os.Mkdir(filepath.Join(folder, name), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(folder, name, "run"), []byte("#!/usr/bin/env bash\n"+run), 0o755))
	}
	return folder
}

// command runs a script, and returns its output and its exit status.
func command(t *testing.T, name string, args ...string) (string, int) {
	t.Helper()
	return within(t, "60", name, args...)
}

// within is command where a section has so many seconds.
func within(t *testing.T, seconds, name string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "KIT_SIMULATED=1", "KIT_SECONDS="+seconds)
	output, err := cmd.CombinedOutput()
	require.NotNil(t, cmd.ProcessState, "%v", err)
	return string(output), cmd.ProcessState.ExitCode()
}

func TestKitCountsChecks(t *testing.T) {
	folder := kit(t, map[string]string{
		"tests": "echo 'ok one'; echo 'ok two'; echo 'other text'",
		"rules": "echo 'skip three: no GPU'; echo 'ok four'",
	})
	output, status := command(t, filepath.Join(folder, "gpu"), "run")
	assert.Zero(t, status, output)
	assert.Contains(t, output, "tests             2        0        0 ")
	assert.Contains(t, output, "rules             1        0        1 ")
	assert.Contains(t, output, "3 passed, 0 failed, 1 skipped\n")
}

// A section fails by a line, by its exit status, by its time, and by saying nothing; those after it still run.
func TestKitFails(t *testing.T) {
	for name, row := range map[string]struct{ run, says string }{
		"a line":        {"echo 'ok one'; echo 'FAIL two: 1 is not 2'", "tests: FAIL two: 1 is not 2\n"},
		"a status":      {"echo 'ok one'; exit 3", "tests: FAIL tests: exit status 3\n"},
		"a crash":       {"echo 'ok one'; kill -SEGV $$", "tests: FAIL tests: exit status 139\n"},
		"the time":      {"echo 'ok one'; sleep 60", "tests: FAIL tests: it did not end in 3 seconds\n"},
		"a child's":     {"echo 'ok one'; sleep 60 & wait", "tests: FAIL tests: it did not end in 3 seconds\n"},
		"no check":      {"true", "tests             0        0        0 "},
		"no executable": {"exec ./missing", "tests: FAIL tests: exit status 127\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seconds := "60"
			if strings.Contains(row.run, "sleep") {
				seconds = "3"
			}
			folder := kit(t, map[string]string{"tests": row.run, "speed": "echo 'ok fast'"})
			output, status := within(t, seconds, filepath.Join(folder, "gpu"), "run")
			assert.Equal(t, 1, status, output)
			assert.Contains(t, output, row.says)
			assert.Contains(t, output, "speed             1        0        0 ")
		})
	}
}

// Sections that ran one by one are in one report.
func TestKitReports(t *testing.T) {
	folder := kit(t, map[string]string{"tests": "echo 'ok one'; echo 'text of tests'", "rules": "echo 'FAIL two: no'"})
	gpu := filepath.Join(folder, "gpu")
	_, status := command(t, gpu, "run", "tests")
	assert.Zero(t, status)
	output, status := command(t, gpu, "report")
	assert.Zero(t, status, output)
	_, status = command(t, gpu, "run", "rules")
	assert.Equal(t, 1, status)
	output, status = command(t, gpu, "report")
	assert.Equal(t, 1, status)
	for _, text := range []string{"commit: abc\n", "simulated driver", "== doctor\nthe doctor says\n", "text of tests\n", "1 passed, 1 failed, 0 skipped\n", "== rules\nFAIL two: no\n"} {
		assert.Contains(t, output, text)
	}
	_, status = command(t, gpu, "run", "speed")
	assert.Equal(t, 2, status, "this folder has no such section")
}

// A section whose run is killed with this script is in the report, as one that failed.
func TestKitReportsWhatWasKilled(t *testing.T) {
	folder := kit(t, map[string]string{"tests": "echo 'ok one'; sleep 60"})
	gpu := filepath.Join(folder, "gpu")
	cmd := exec.Command(gpu, "run")
	cmd.Env = append(os.Environ(), "KIT_SIMULATED=1", "KIT_SECONDS=20")
	require.NoError(t, cmd.Start())
	text := filepath.Join(folder, "results", "tests.txt")
	require.Eventually(t, func() bool { b, _ := os.ReadFile(text); return len(b) > 0 }, 30*time.Second, 10*time.Millisecond)
	require.NoError(t, cmd.Process.Kill())
	_ = cmd.Wait()
	output, status := command(t, gpu, "report")
	assert.Equal(t, 1, status, output)
	assert.Contains(t, output, "tests: FAIL tests: exit status 137\n")
	assert.Contains(t, output, "== tests\nok one\n")
}

// The folder can be copied in pieces, and sections whose pieces have arrived can be unpacked.
func TestKitIsPacked(t *testing.T) {
	folder := kit(t, map[string]string{"tests": "echo 'ok one'", "rules": "echo 'ok two'"})
	large := make([]byte, 3_000_000)
	_, err := rand.NewChaCha8([32]byte{}).Read(large) // which nothing compresses
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "rules", "large"), large, 0o644))
	pieces, there := t.TempDir(), filepath.Join(t.TempDir(), "there")
	output, status := command(t, "./gpu", "pack", folder, pieces, "1")
	require.Zero(t, status, output)
	require.FileExists(t, filepath.Join(pieces, "kit-2-rules.tar.xz.001"), output)
	second := filepath.Join(pieces, "kit-2-rules.tar.xz.001")
	require.NoError(t, os.Rename(second, second+".late"))
	output, status = command(t, filepath.Join(pieces, "unpack"), there)
	assert.Equal(t, 1, status)
	assert.Contains(t, output, "kit-1-tests: unpacked\n")
	assert.Contains(t, output, "kit-2-rules: kit-2-rules.tar.xz.001 is missing\n")
	assert.NoDirExists(t, filepath.Join(there, "rules"))
	output, status = command(t, filepath.Join(there, "gpu"), "run", "tests")
	assert.Zero(t, status, output)
	require.NoError(t, os.Rename(second+".late", second))
	first, err := os.ReadFile(filepath.Join(pieces, "kit-2-rules.tar.xz.000"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(pieces, "kit-2-rules.tar.xz.000"), first[1:], 0o644))
	output, status = command(t, filepath.Join(pieces, "unpack"), there)
	assert.Equal(t, 1, status)
	assert.Contains(t, output, "kit-2-rules: kit-2-rules.tar.xz.000 has 999999 bytes of 1000000\n")
	require.NoError(t, os.WriteFile(filepath.Join(pieces, "kit-2-rules.tar.xz.000"), append(first[1:], 0), 0o644))
	output, status = command(t, filepath.Join(pieces, "unpack"), there)
	assert.Equal(t, 1, status)
	assert.Contains(t, output, "kit-2-rules: cannot be unpacked\n")
	require.NoError(t, os.WriteFile(filepath.Join(pieces, "kit-2-rules.tar.xz.000"), first, 0o644))
	output, status = command(t, filepath.Join(pieces, "unpack"), there)
	assert.Zero(t, status, output)
	assert.Contains(t, output, "kit-2-rules: unpacked\n")
	arrived, err := os.ReadFile(filepath.Join(there, "rules", "large"))
	require.NoError(t, err)
	assert.Equal(t, large, arrived)
}

// A test that hangs or crashes does not take the tests after it with it.
func TestKitRunsTestsThatAnotherOneEnded(t *testing.T) {
	run, err := os.ReadFile("kit/tests/run")
	require.NoError(t, err)
	folder := t.TempDir()
	for name, script := range map[string]string{
		"run":     string(run),
		"devices": "#!/bin/sh\necho driver; echo cuda:0",
		// Prints what the package testing does; the second test crashes the process.
		"some.test": `#!/usr/bin/env bash
case "$*" in
*-test.list*) printf 'TestGPUOne\nTestGPUTwo\nTestGPUThree\n' ;;
*^TestGPUThree\$*) echo '--- PASS: TestGPUThree (0.00s)' ;;
*) [[ $* == *TestGPUTwo* ]] || echo '--- PASS: TestGPUOne (0.00s)'; kill -SEGV $$ ;;
esac`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(script), 0o755))
	}
	cmd := exec.Command("./run")
	cmd.Dir = folder
	output, err := cmd.CombinedOutput()
	require.NoError(t, err)
	for _, line := range []string{"ok some.TestGPUOne\n", "FAIL some.TestGPUTwo: it did not end\n", "ok some.TestGPUThree\n", "with 2 tests to run"} {
		assert.Contains(t, string(output), line)
	}
}
