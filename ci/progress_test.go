package ci

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// progress runs ci/progress with a script of bash as the command.
func progress(t *testing.T, script string, environment ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("./progress", "A step (the first time long)", "bash", "-c", script)
	cmd.Env = append(append(os.Environ(), "PROGRESS_SECONDS=0.05"), environment...)
	return cmd
}

// The command waits until the script has told something: without a sign of life it never ends.
func TestProgressTells(t *testing.T) {
	told := filepath.Join(t.TempDir(), "told")
	require.NoError(t, syscall.Mkfifo(told, 0o600))
	cmd := progress(t, `echo out; echo "fetching a" >&2; read -r < "$TOLD"`, "TOLD="+told)
	var out bytes.Buffer
	cmd.Stdout = &out
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var text strings.Builder
	one := make([]byte, 1)
	for !strings.Contains(text.String(), "A step, ") || !strings.Contains(text.String(), " s: fetching a ...\n") {
		_, err := stderr.Read(one)
		require.NoError(t, err, text.String())
		text.Write(one)
	}
	require.NoError(t, os.WriteFile(told, []byte("\n"), 0o600))
	rest := new(bytes.Buffer)
	_, err = rest.ReadFrom(stderr)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait())
	assert.Equal(t, "out\n", out.String())
	assert.Regexp(t, `^A step \(the first time long\) \.\.\.\n`, text.String())
	assert.Regexp(t, `A step: \d+ s\n$`, rest.String())
}

// A command that fails fails the step, and all that it wrote is shown, but signs of life.
func TestProgressOfAFailure(t *testing.T) {
	var stderr bytes.Buffer
	cmd := progress(t, `echo "package 1 of 2 ..." >&2; echo "no such wheel" >&2; exit 7`)
	cmd.Stderr = &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 7, exit.ExitCode())
	assert.Contains(t, stderr.String(), "A step: failed after ")
	assert.Contains(t, stderr.String(), "no such wheel\n")
	assert.NotContains(t, stderr.String()[strings.Index(stderr.String(), "failed"):], "package 1 of 2")
}

// What runs within a step only names its part: the outer one tells it.
func TestProgressWithinAnother(t *testing.T) {
	var stderr bytes.Buffer
	cmd := progress(t, `./progress Part bash -c 'echo inner >&2; exit 3'`)
	cmd.Stderr = &stderr
	assert.Error(t, cmd.Run())
	assert.Contains(t, stderr.String(), "inner\n")
	assert.Equal(t, 1, strings.Count(stderr.String(), "failed after"))
}
