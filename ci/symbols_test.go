package ci

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Two major versions of this library may be linked into one program: every C
// symbol that it defines carries the prefix with the version.
func TestSymbolsCarryThePrefix(t *testing.T) {
	for path, atLeast := range map[string]int{"internal/bridge": 8, "internal/cuda": 40} {
		ours := 0
		for _, object := range objects(t, path) {
			out, err := exec.Command("nm", "--defined-only", "--extern-only", "--format=posix", object).Output()
			require.NoError(t, err)
			for line := range strings.Lines(string(out)) {
				name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
				if runtime.GOOS == "darwin" {
					name = strings.TrimPrefix(name, "_") // Mach-O puts one before every C name
				}
				switch {
				case strings.HasPrefix(name, "cdevice_v0_"):
					ours++
				case strings.HasPrefix(name, "_cgo"): // cgo's own, with a hash of the package
				case name == "":
				default:
					t.Errorf("symbol %s of %s in %s lacks the prefix cdevice_v0_", name, filepath.Base(object), path)
				}
			}
		}
		assert.GreaterOrEqual(t, ours, atLeast, "the test must see the symbols of %s", path)
	}
}

// objects are the compiled C files of a package.
func objects(t *testing.T, path string) []string {
	t.Helper()
	archive, err := exec.Command("go", "list", "-export", "-f", "{{.Export}}", "../"+path).Output()
	require.NoError(t, err)
	extract := exec.Command("ar", "x", strings.TrimSpace(string(archive)))
	extract.Dir = t.TempDir()
	out, err := extract.CombinedOutput()
	require.NoError(t, err, "%s", out)
	found, err := filepath.Glob(filepath.Join(extract.Dir, "_x*.o"))
	require.NoError(t, err)
	require.NotEmpty(t, found, "the C objects of %s", path)
	return found
}
