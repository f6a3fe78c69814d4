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

// A program of another module, with C code of its own.
const headerProgram = `package main

/*
#include <arrow_device.h>

static int64_t length(const struct ArrowDeviceArray* a) { return a->array.length; }
*/
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

func main() {
	b := array.NewInt32Builder(memory.DefaultAllocator)
	b.AppendValues([]int32{1, 2, 3}, nil)
	column := b.NewArray()
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: column.DataType()}}, nil)
	batch, err := cdevice.WrapRecordBatch(array.NewRecordBatch(schema, []arrow.Array{column}, 3), device.CPUDevice())
	if err != nil {
		panic(err)
	}
	var out C.struct_ArrowDeviceArray
	var outSchema C.struct_ArrowSchema
	err = cdevice.ExportRecordBatch(batch,
		cdevice.DeviceArrayFromPtr(uintptr(unsafe.Pointer(&out))), cdevice.SchemaFromPtr(uintptr(unsafe.Pointer(&outSchema))))
	if err != nil {
		panic(err)
	}
	fmt.Println(C.length(&out), out.device_type == C.ARROW_DEVICE_CPU, C.GoString(outSchema.format))
}
`

// otherModule is a folder with a module that requires this one, and can be built offline.
func otherModule(t *testing.T, program string) string {
	t.Helper()
	root, err := filepath.Abs("..")
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
	for name, content := range map[string]string{"go.mod": strings.ReplaceAll(text, "'", `"`), "go.sum": string(goSum), "main.go": program} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return dir
}

// goIn runs the go command in a folder, offline, and returns its standard output.
func goIn(t *testing.T, dir string, environment []string, arguments ...string) string {
	t.Helper()
	cmd := exec.Command("go", arguments...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "GOPROXY=off", "GOWORK=off"), environment...)
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	require.NoError(t, err, "go %s: %s", arguments, &errors)
	return string(out)
}

// The #cgo line that cdevice/include/doc.go documents works, for a module in a folder and for a
// vendored one.
func TestProgramOfAnotherModuleIncludesTheHeader(t *testing.T) {
	if testing.Short() {
		t.Skip("links a program and copies what it imports")
	}
	dir := otherModule(t, headerProgram)
	header := func(mode string) string {
		return strings.TrimSpace(goIn(t, dir, nil, "list", mode, "-f", "{{.Dir}}", module+"cdevice/include"))
	}
	cflags := "CGO_CFLAGS=-O2 -g '-I" + header("-mod=mod") + "'"
	assert.Equal(t, "3 true +s\n", goIn(t, dir, []string{cflags}, "run", "-mod=mod", "."))

	goIn(t, dir, nil, "mod", "vendor")
	assert.FileExists(t, filepath.Join(header("-mod=vendor"), "arrow_device.h"))
	assert.True(t, strings.HasPrefix(header("-mod=vendor"), dir))
	goIn(t, dir, nil, "build", "-mod=vendor", module+"internal/abi")
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
