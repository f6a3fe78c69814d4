package ci

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// The packages without cgo build for the platforms that README lists as compiled. Those with C code need a compiler for
// each: make windows, make darwin.
func TestOtherPlatformsCompile(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the standard library for each platform")
	}
	for _, platform := range []string{"linux/386", "linux/arm64", "linux/riscv64", "darwin/amd64", "darwin/arm64", "windows/amd64"} {
		system, arch, _ := strings.Cut(platform, "/")
		build := exec.Command("go", "build", "-o", os.DevNull, "../device/...", "../cudasim/...", "../internal/sizeclass", "../internal/errno", "../internal/handle", "../internal/refcount", "../cdevice/include")
		build.Env = append(os.Environ(), "GOOS="+system, "GOARCH="+arch, "CGO_ENABLED=0")
		out, err := build.CombinedOutput()
		assert.NoError(t, err, "%s: %s", platform, out)
	}
}
