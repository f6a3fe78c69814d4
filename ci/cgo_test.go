package ci

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const cgoMessage = "undefined: arrowdevice_needs_cgo__set_CGO_ENABLED_1_and_install_a_C_compiler"

// Without cgo (Go disables it by itself where there is no C compiler), a package builds, or the
// compiler's one error names the remedy. internal/cuda and internal/abi are the roots of all
// packages that need cgo.
func TestWithoutCgo(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the standard library without cgo")
	}
	all := []string{"../memory/...", "../flight", "../pyextension"}
	for _, path := range mayUseCgo {
		// The first builds; nothing is left of the others.
		if !slices.Contains([]string{"cudasim", "examples/consumer", "examples/driver", "examples/producer", "pyextension/internal/capi"}, path) {
			all = append(all, "../"+path)
		}
	}
	for complaints, builds := range map[int][][]string{
		0: {{"../device/...", "../cudasim/...", "../internal/sizeclass", "../integration/soak/..."}},
		1: {{"../cdevice"}, {"../memory/cudaalloc"}},
		2: {all},
	} {
		for _, packages := range builds {
			build := exec.Command("go", append([]string{"build", "-o", os.DevNull}, packages...)...)
			build.Env = append(os.Environ(), "CGO_ENABLED=0")
			out, err := build.CombinedOutput()
			assert.Equal(t, complaints > 0, err != nil, "%s: %s", packages, out)
			found := 0
			for line := range strings.Lines(string(out)) {
				switch line = strings.TrimSpace(line); {
				case strings.HasPrefix(line, "# "): // the package that the complaints below are of
				case strings.HasSuffix(line, cgoMessage):
					found++
				default:
					t.Errorf("%s: %s", packages, line)
				}
			}
			assert.Equal(t, complaints, found, "%s: %s", packages, out)
		}
	}
}

// C may write to the stack of a goroutine only while no Go code runs on it, which could move the stack: noescape without
// nocallback has no effect in Go, and nocallback alone makes calls slower.
func TestDirectivesOfCgoArePairs(t *testing.T) {
	pairs := 0
	for _, path := range mayUseCgo {
		files, err := filepath.Glob("../" + path + "/*.go")
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			named := map[string][]string{}
			for _, d := range directive.FindAllStringSubmatch(string(text), -1) {
				named[d[1]] = append(named[d[1]], d[2])
			}
			assert.ElementsMatch(t, named["noescape"], named["nocallback"], file)
			pairs += len(named["noescape"])
		}
	}
	assert.Positive(t, pairs)
}

var directive = regexp.MustCompile(`#cgo (noescape|nocallback) (\w+)`)
