package goroutineleak_test

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/pprof"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/goroutineleak"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

func TestMain(m *testing.M) { os.Exit(goroutineleak.Run(m)) }

// leaks names the goroutines that TestOfAnotherProcess leaves.
const leaks = "CDEVICE_TEST_LEAKS"

func TestLeaksFailThePackage(t *testing.T) {
	for leak, fails := range map[string]bool{"none": false, "reachable": false, "unreachable": pprof.Lookup("goroutineleak") != nil} {
		self, err := os.Executable()
		require.NoError(t, err)
		cmd := exec.Command(self, "-test.run=^TestOfAnotherProcess$")
		cmd.Env = append(os.Environ(), leaks+"="+leak)
		out, err := cmd.CombinedOutput()
		assert.Contains(t, string(out), "PASS", leak)
		if !fails {
			assert.NoError(t, err, "%s: %s", leak, out)
			continue
		}
		assert.Error(t, err, leak)
		assert.Equal(t, 1, cmd.ProcessState.ExitCode(), leak)
		assert.Contains(t, string(out), "goroutines that nothing can wake", leak)
		assert.Contains(t, string(out), "goroutineleak_test.leave", leak)
	}
}

func TestOfAnotherProcess(t *testing.T) {
	switch os.Getenv(leaks) {
	case "":
		t.Skip("it is for a process that another test starts")
	case "reachable":
		leave(t, wake)
	case "unreachable":
		leave(t, make(chan struct{}))
	}
}

// wake reaches goroutines from a global variable.
var wake = make(chan struct{})

// leave leaves goroutines that wait: several, as the collector may still see a pointer to one in a dead part of a stack.
func leave(t *testing.T, never chan struct{}) {
	const goroutines = 8
	for range goroutines {
		go func() { <-never }()
	}
	within.Eventually(t, "the goroutines wait", func() bool {
		buf := make([]byte, 1<<20)
		return len(waiting.FindAll(buf[:runtime.Stack(buf, true)], -1)) == goroutines
	})
}

// waiting matches the stack of a goroutine of leave.
var waiting = regexp.MustCompile(`\[chan receive\]:\n(.+\n)+created by \S+goroutineleak_test\.leave `)
