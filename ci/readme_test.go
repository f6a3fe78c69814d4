package ci

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The page of code in the README compiles.
func TestReadmeCodeCompiles(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, code, found := strings.Cut(string(readme), "```go\n")
	require.True(t, found)
	code, _, found = strings.Cut(code, "```")
	require.True(t, found)
	file := filepath.Join(t.TempDir(), "readme.go")
	require.NoError(t, os.WriteFile(file, []byte("package readme\n\n"+code), 0o600))
	out, err := exec.Command("go", "vet", file).CombinedOutput()
	assert.NoError(t, err, "%s", out)
}
