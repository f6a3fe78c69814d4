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

// otherModule is a folder with the program examples/consumer in a module that requires this one, and can be built offline.
func otherModule(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	program, err := os.ReadFile("../examples/consumer/main.go")
	require.NoError(t, err)
	goMod, err := os.ReadFile("../go.mod")
	require.NoError(t, err)
	goSum, err := os.ReadFile("../go.sum")
	require.NoError(t, err)
	own := strings.TrimSuffix(module, "/")
	text := strings.Replace(string(goMod), "module "+own, "module example.org/program", 1) +
		"\nrequire " + own + " v0.0.0\n\nreplace " + own + " => '" + root + "'\n"
	dir := filepath.Join(t.TempDir(), "another module")
	require.NoError(t, os.Mkdir(dir, 0o700))
	for name, content := range map[string]string{"go.mod": strings.ReplaceAll(text, "'", `"`), "go.sum": string(goSum), "main.go": string(program)} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return dir
}

// goIn runs the go command in a folder, and returns its standard output. It may download what go.sum has.
func goIn(t *testing.T, dir string, arguments ...string) string {
	t.Helper()
	cmd := exec.Command("go", arguments...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	require.NoError(t, err, "go %s: %s", arguments, &errors)
	return string(out)
}

// A module that vendors this one has the header where cdevice/include/doc.go says, and compiles. TestConsumerInItsOwnModule,
// in examples, is about one that does not.
func TestVendoredModuleHasTheHeader(t *testing.T) {
	if testing.Short() {
		t.Skip("copies what a program imports")
	}
	dir := otherModule(t)
	goIn(t, dir, "mod", "vendor")
	include := strings.TrimSpace(goIn(t, dir, "list", "-mod=vendor", "-f", "{{.Dir}}", module+"cdevice/include"))
	assert.FileExists(t, filepath.Join(include, "arrow_device.h"))
	assert.True(t, strings.HasPrefix(include, dir))
	goIn(t, dir, "build", "-mod=vendor", module+"internal/abi")
}

// The header is C and C++ without a warning, alone and after other copies of its parts.
func TestHeaderCompilesBesideOtherCopies(t *testing.T) {
	const include = "#include <arrow_device.h>\n"
	sources := map[string]string{
		"alone": include,
		"twice": include + "#include \"" + "../internal/abi/abi.h\"\n",
		"after the C data interface of another library": "#define ARROW_C_DATA_INTERFACE\nstruct ArrowSchema { int x; };\nstruct ArrowArray { int y; };\n" + include,
	}
	const use = "struct ArrowDeviceArray a; struct ArrowDeviceArrayStream s; struct ArrowAsyncDeviceStreamHandler h; struct ArrowArrayStream p;\n"
	for name, source := range sources {
		for language, compiler := range map[string][]string{"c": {"gcc", "-std=c11"}, "c++": {"g++", "-std=c++11"}} {
			arguments := append(compiler[1:], "-x", language, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-I../cdevice/include", "-I.", "-fsyntax-only", "-")
			cmd := exec.Command(compiler[0], arguments...)
			cmd.Stdin = strings.NewReader(source + use)
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s, %s: %s", name, language, out)
		}
	}
}
