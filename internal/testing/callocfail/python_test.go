//go:build cgo && linux

package callocfail_test

import (
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/callocfail"
)

// Functions of Go in Python, and the load of their library.
func TestPythonWithFailingAllocations(t *testing.T) {
	switch {
	case callocfail.Built():
		t.Skip("it makes a build of its own")
	case mode != "-asan=false":
		t.Skip("Python is not built with a sanitizer")
	case testing.Short():
		t.Skip("the library takes a minute to build")
	}
	python, err := exec.LookPath(cmp.Or(os.Getenv("PYTHON"), "python3"))
	if err != nil {
		t.Skip(err)
	}
	folder := t.TempDir()
	overlay, err := callocfail.Overlay("pylib", folder)
	require.NoError(t, err)
	library := filepath.Join(folder, "libfailing.so")
	// With these flags the packages are those of the suites for Python.
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-trimpath", "-ldflags=-w", "-overlay="+overlay, "-o", library, "./pylib")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	run := func(arguments ...string) []byte {
		cmd := exec.CommandContext(t.Context(), python, append([]string{filepath.Join("testdata", "failing.py"), library}, arguments...)...)
		cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join("..", "..", "..", "python"))
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%v: %s", arguments, out)
		return out
	}
	t.Logf("%s", run())
	loads := 0
	for n := 1; !bytes.Contains(run(strconv.Itoa(n)), []byte("all allocations succeed")); n += 1 + n/4 {
		loads++
	}
	require.Greater(t, loads, 10)
}
