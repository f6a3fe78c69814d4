package main_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
)

var update = flag.Bool("update", false, "write the golden files")

// binary is the command, which the tests run as users do: in another folder, alone.
var binary string

func TestMain(m *testing.M) {
	flag.Parse()
	dir, err := os.MkdirTemp("", "arrowdevice-")
	if err == nil {
		binary = filepath.Join(dir, "arrowdevice")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	os.RemoveAll(dir)
	os.Exit(status)
}

// ran is what a run of the command has left.
type ran struct {
	stdout, stderr string
	status         int
	took           time.Duration
}

// command is the command in a folder and an environment of its own.
func command(t *testing.T, env []string, args ...string) *exec.Cmd {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir}, env...)
	return cmd
}

func arrowdevice(t *testing.T, env []string, args ...string) ran {
	t.Helper()
	cmd := command(t, env, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(t, err)
	}
	require.NotContains(t, stderr.String(), "panic:")
	return ran{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode(), time.Since(start)}
}

// simulated is the environment of a simulated machine.
func simulated(t *testing.T, o cudasim.Options) []string {
	t.Helper()
	path, err := o.Build()
	require.NoError(t, err)
	return []string{"CDEVICE_CUDA_DRIVER=" + path, "CUDASIM=" + o.String()}
}

// golden compares text with a file of testdata.
func golden(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o666))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	assert.Equal(t, string(want), text, "with -update the test writes %s", file)
}

func TestUsage(t *testing.T) {
	for _, bad := range [][]string{
		{}, {"bandwith"}, {"doctor", "now"}, {"doctor", "--colour"}, {"doctor", "--timeout", "0s"}, {"doctor", "--timeout", "soon"},
	} {
		r := arrowdevice(t, nil, bad...)
		assert.Equal(t, 2, r.status, "%v", bad)
		assert.NotEmpty(t, r.stderr, "%v", bad)
		assert.Empty(t, r.stdout, "%v", bad)
	}
	r := arrowdevice(t, nil, "--help")
	assert.Zero(t, r.status)
	assert.Contains(t, r.stdout, "doctor")
	assert.Contains(t, r.stdout, "bandwidth")
	r = arrowdevice(t, nil, "doctor", "-h")
	assert.Zero(t, r.status)
	assert.Contains(t, r.stderr, "-python interpreter")
}
