package bridge

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
)

// The words that C shares with Go order all that threads do with blocks: without one of the orders in bridge.c,
// testdata/order.c has a race. A processor that reorders may show it without the sanitizer.
func TestOrderOfMemory(t *testing.T) {
	for _, source := range []string{"testdata/order.c", "bridge.c"} {
		require.FileExists(t, source) // which makes go test run again when it changes
	}
	sources := []string{"testdata/order.c", "bridge.c", "fork.c"}
	for name, c := range map[string]struct {
		flags  []string
		rounds string
	}{
		"plain":            {[]string{"-O2"}, "300"},
		"thread sanitizer": {[]string{"-O1", "-g", "-fsanitize=thread"}, "400"},
		// which finds what is not freed, and what is used afterwards
		"address sanitizer": {[]string{"-O1", "-g", "-fsanitize=address"}, "50"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if out, err := runC(t, append(c.flags, "testdata/nothing.c")); err != nil {
				// gcc brings its sanitizers; an emulator or another compiler may have none.
				require.False(t, os.Getenv("CI") != "" && os.Getenv("CC") == "", "%v: %s", err, out)
				t.Skipf("an empty program does not run: %v: %s", err, out)
			}
			out, err := runC(t, append(c.flags, sources...), c.rounds)
			require.NoError(t, err, "%s", out)
		})
	}
}

// runC compiles a program, and runs it with the arguments.
func runC(t *testing.T, flags []string, arguments ...string) (out []byte, err error) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	if out, err := emulated.Compiler(append(flags, "-std=c11", "-D_GNU_SOURCE", "-pthread", "-o", program)...).CombinedOutput(); err != nil {
		return out, err
	}
	return emulated.Command(program, arguments...).CombinedOutput()
}
