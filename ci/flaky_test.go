package ci

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/assert"
)

// flaky runs ci/flaky for one test, and returns its output and its exit status.
func flaky(options ...string) (string, int) {
	args := append([]string{"-n", "3", "--load", "1", "--short", "--run", "^TestStaleWord|^TestUnknownWords"}, options...)
	cmd := exec.Command("./flaky", append(args, "./internal/handle")...)
	output, _ := cmd.CombinedOutput()
	return string(output), cmd.ProcessState.ExitCode()
}

func TestFlakyRunsEachTestAlone(t *testing.T) {
	output, status := flaky("--seed", "7")
	assert.Zero(t, status, output)
	assert.Contains(t, output, "3 times each, seed 7, load 1")
	assert.Contains(t, output, "no failure in ")
	assert.Regexp(t, `(?m)^ +\d+\.\d\d +\d+\.\d\d  github.com/arrowdevice/arrowdevice/internal/handle.TestStale`, output, "how long each took")
}

// A run that is not done in time has failed: here each one is not.
func TestFlakyTellsWhatFailedAndHowOften(t *testing.T) {
	output, status := flaky("--timeout", "0")
	assert.Equal(t, 1, status, output)
	assert.Contains(t, output, "3 of 3: github.com/arrowdevice/arrowdevice/internal/handle.Test")
	assert.Contains(t, output, "not done after 0 seconds")
}

func TestFlakyNeedsTests(t *testing.T) {
	output, status := flaky("--run", "^TestThereIsNone$")
	assert.Equal(t, 1, status)
	assert.Contains(t, output, "no tests")
}
