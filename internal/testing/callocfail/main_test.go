//go:build cgo && linux

package callocfail_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/callocfail"
	"github.com/arrowdevice/arrowdevice/internal/testing/goroutineleak"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// All tests together leave nothing behind.
func TestMain(m *testing.M) {
	code := goroutineleak.Run(m)
	if left := cdevice.ReadStats(); code == 0 && left != (cdevice.Stats{}) {
		fmt.Fprintln(os.Stderr, "the tests left something unreleased:", left)
		code = 1
	}
	os.Exit(code)
}

// The tests of this package in a build in which allocations can fail.
func TestWithFailingAllocations(t *testing.T) {
	switch {
	case callocfail.Built():
		t.Skip("this is that build")
	case mode == "":
		t.Skip("the race detector sees nothing in C")
	}
	file, err := callocfail.Overlay(".", t.TempDir())
	require.NoError(t, err)
	args := []string{"test", "-count=1", "-vet=off", "-ldflags=-w", "-timeout=10m", mode, "-overlay=" + file, "-v"}
	if testing.Short() {
		args = append(args, "-short")
	}
	out, err := exec.CommandContext(t.Context(), "go", append(args, ".")...).CombinedOutput()
	assert.NoError(t, err)
	if assert.Positive(t, bytes.Count(out, []byte("\n--- PASS: TestEach")), "no test has run") && !t.Failed() {
		return
	}
	t.Logf("go %v:\n%s", args, out)
}

// needsOverlay skips a test in a build in which no allocation fails.
func needsOverlay(t *testing.T) {
	t.Helper()
	if !callocfail.Built() {
		t.Skip("TestWithFailingAllocations runs it")
	}
}

// trial is one run of an operation.
type trial struct {
	*testing.T
	n      int  // of the allocation that fails; 0: none does
	always bool // all after it fail, too
	failed int  // how many have
	kept   []func()

	permanent int // blocks of C memory that the process keeps
}

// during runs the part of the operation in which allocations fail. It is called once.
func (r *trial) during(part func() error) error {
	callocfail.Arm(r.n, r.always)
	defer func() { r.failed = callocfail.Disarm() }()
	return part()
}

// keep has something released when the test ends: until then, no later trial can use the memory of it again.
func (r *trial) keep(release func()) { r.kept = append(r.kept, release) }

// end releases what was kept.
func (r *trial) end() {
	for _, release := range r.kept {
		release()
	}
	r.kept = nil
}

// settled waits until only those objects are alive that may be: some end on other goroutines.
func settled(t *testing.T, enough func(cdevice.Stats) bool) {
	t.Helper()
	if !within.Becomes(10*time.Second, func() bool { return enough(cdevice.ReadStats()) }) {
		t.Fatalf("not released: %v", cdevice.ReadStats())
	}
}

// eachFails runs an operation again and again, with one more allocation each time that succeeds before one fails, and then
// with all that come after it failing, too. After a failure nothing is left, and the operation succeeds. An operation's error is
// nil only if the results are right. least is how many allocations it makes.
func eachFails(t *testing.T, least int, operation func(*trial) error) {
	t.Helper()
	begun, blocks := cdevice.ReadStats(), callocfail.Live()
	var trials []*trial
	run := func(r *trial) error {
		trials = append(trials, r)
		return operation(r)
	}
	for _, always := range []bool{false, true} {
		met := 0
		for ; ; met++ {
			settled(t, func(s cdevice.Stats) bool { return s.Goroutines == begun.Goroutines })
			before := cdevice.ReadStats()
			r := &trial{T: t, n: met + 1, always: always}
			err := run(r)
			require.False(t, t.Failed(), "after allocation %d has failed; all after it: %t", r.n, always)
			if r.failed == 0 {
				require.NoError(t, err)
				break
			}
			if err == nil {
				require.False(t, always, "all allocations from number %d have failed, without an error", r.n)
				continue // it has done without
			}
			require.ErrorIs(t, err, syscall.ENOMEM, "allocation %d", r.n)
			r.end()
			settled(t, func(s cdevice.Stats) bool { return s == before })
			require.NoError(t, run(&trial{T: t}), "after allocation %d has failed", r.n)
		}
		require.GreaterOrEqual(t, met, least, "allocations that failed")
		t.Logf("%d allocations", met)
	}
	for _, r := range trials {
		r.end()
		blocks += r.permanent
	}
	settled(t, func(s cdevice.Stats) bool { return s == begun })
	within.Eventually(t, "C memory is freed", func() bool { return callocfail.Live() <= blocks })
}
