package ci

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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

// The command of cdevice/include/doc.go finds the header, also in a path that needs quotes, and keeps the flags that are set.
func TestFlagsFindTheHeader(t *testing.T) {
	export := regexp.MustCompile(`(?m)^//\t(export CGO_CFLAGS="\$\(go run .*)$`).FindStringSubmatch(read(t, "../cdevice/include/doc.go"))
	require.NotNil(t, export)
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	for folder, quote := range map[string]string{"checkout": "", "a checkout": "'", "a user's checkout": `"`} {
		replaced := filepath.Join(t.TempDir(), folder)
		require.NoError(t, os.Symlink(root, replaced))
		dir := otherModule(t)
		goMod := strings.Replace(read(t, filepath.Join(dir, "go.mod")), `"`+root+`"`, `"`+replaced+`"`, 1)
		require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte(goMod), 0o600))
		const program = "package main\n\n// #include <arrow_device.h>\nimport \"C\"\n\nfunc main() { print(C.ARROW_DEVICE_CUDA) }\n"
		require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o600))
		for set, want := range map[string]string{"": "-O2 -g", "-O1 -DX": "-O1 -DX"} {
			cmd := exec.Command("bash", "-euc", export[1]+"\n"+`echo "$CGO_CFLAGS"; go run .`)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_CFLAGS="+set)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Equal(t, quote+"-I"+filepath.Join(replaced, "cdevice", "include")+quote+" "+want+"\n2", string(out))
		}
	}
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
