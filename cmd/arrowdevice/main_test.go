//go:build unix

package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/goroutineleak"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// binary is the command, which the tests run as users do: in another folder, alone.
var binary string

func TestMain(m *testing.M) {
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
	status := goroutineleak.Run(m)
	os.RemoveAll(dir)
	os.Exit(status)
}

// ran is what a run of the command has left.
type ran struct {
	stdout, stderr string
	status         int
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
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		assert.NoError(t, err)
	}
	assert.NotContains(t, stderr.String(), "panic:")
	return ran{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// forBoth runs a command for people and for programs, at the same time.
func forBoth(t *testing.T, env []string, args ...string) (people, programs ran) {
	t.Helper()
	var both sync.WaitGroup
	both.Go(func() { people = arrowdevice(t, env, args...) })
	both.Go(func() { programs = arrowdevice(t, env, append(args[:len(args):len(args)], "--json")...) })
	both.Wait()
	return people, programs
}

// interrupted runs a command that does not end, interrupts it once it is ready, and returns what it printed.
func interrupted(t *testing.T, ready func(pid int) bool, env []string, args ...string) (stdout string) {
	t.Helper()
	cmd := command(t, env, args...)
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errors
	require.NoError(t, cmd.Start())
	within.Eventually(t, "the command is ready", func() bool { return ready(cmd.Process.Pid) })
	start := time.Now()
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	_ = cmd.Wait()
	t.Log("ended after", time.Since(start))
	assert.Less(t, time.Since(start), 20*time.Second, "on a machine that has time, at once")
	assert.Equal(t, 130, cmd.ProcessState.ExitCode())
	assert.Contains(t, errors.String(), "arrowdevice: interrupted")
	return out.String()
}

// hanging is the environment of a driver of which a call does not return after what is before, and the process that has
// called it, 0 if none has.
func hanging(t *testing.T, call, before string) (env []string, caller func() (pid int)) {
	file := filepath.Join(t.TempDir(), "called")
	path := library(t, map[string]string{call: before + fmt.Sprintf(`dprintf(creat(%q, 0666), "%%d", getpid()); for (;;) pause()`, file)})
	return []string{"CDEVICE_CUDA_DRIVER=" + path}, func() (pid int) {
		text, _ := os.ReadFile(file)
		pid, _ = strconv.Atoi(string(text))
		return pid
	}
}

// simulated is the environment of a simulated machine.
func simulated(t *testing.T, o cudasim.Options) []string {
	t.Helper()
	path, err := o.Build()
	require.NoError(t, err)
	return []string{"CDEVICE_CUDA_DRIVER=" + path, "CUDASIM=" + o.String()}
}

func TestUsage(t *testing.T) {
	for _, bad := range [][]string{
		{}, {"bandwith"}, {"--verbose"}, {"version", "1"}, {"--version", "--short"}, {"doctor", "now"}, {"doctor", "--colour"}, {"doctor", "--timeout", "0s"}, {"doctor", "--timeout", "soon"},
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

func TestVersion(t *testing.T) {
	for _, name := range []string{"version", "--version"} {
		r := arrowdevice(t, nil, name)
		assert.Zero(t, r.status, r.stderr)
		assert.Regexp(t, fmt.Sprintf(`^arrowdevice \S+\n%s, %s/%s\n$`, runtime.Version(), runtime.GOOS, runtime.GOARCH), r.stdout)
	}
}

// A report that nothing has taken is none.
func TestOutputThatCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	env := simulated(t, cudasim.Options{})
	for _, args := range [][]string{
		{"version"}, {"doctor", "--python", ""}, {"doctor", "--python", "", "--json"}, {"bandwidth", "--time", "1us", "--sizes", "64"},
	} {
		cmd := command(t, env, args...)
		cmd.Stdout = full
		require.Error(t, cmd.Run())
		assert.Equal(t, 1, cmd.ProcessState.ExitCode(), args)
	}
}
