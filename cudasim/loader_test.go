package cudasim

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// buildLibrary builds a library that a program in C loads.
func buildLibrary(t testing.TB, source string, flags ...string) string {
	t.Helper()
	cc, err := theCompiler()
	require.NoError(t, err)
	library := filepath.Join(t.TempDir(), "library.so")
	args := slices.Concat(cc.command[1:], []string{"-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", library, source}, flags)
	out, err := exec.Command(cc.command[0], args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return library
}

// The loader's lock and the machine's are taken in one order: a library can call the driver while it is loaded or
// unloaded, and another thread is in the driver. A program that hangs is ended by a signal.
func TestLibrariesThatCallTheDriverWhileTheyAreLoaded(t *testing.T) {
	t.Parallel()
	library := buildLibrary(t, "testdata/loader/library.c")
	r := buildProgram(t, "testdata/loader/program.c", "-rdynamic")
	driver, err := Build()
	require.NoError(t, err)
	for _, options := range []string{"stacks=0", "stacks=1", "stacks=2"} {
		out, err := r.runWith(t, driver, options, library)
		require.NoError(t, err, "%s: %s", options, out)
	}
}
