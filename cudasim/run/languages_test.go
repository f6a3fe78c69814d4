package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
)

func TestExampleInGo(t *testing.T) {
	t.Parallel()
	out, err := command(t, "-machine", "devices=2", "go", "run", "../../examples/devices").CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Contains(t, string(out), "\ncuda:0 ")
	assert.Contains(t, string(out), "\ncuda:1 ")
	assert.NotContains(t, string(out), "\ncuda:2 ")
	assert.NotContains(t, string(out), "cudasim:")
}

// A module that uses the driver by cgo alone.
var goModule = map[string]string{
	"go.mod": "module example.org/program\n\ngo 1.25\n",
	"main.go": `package main

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

static int call(const char *name, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d) {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW);
  int (*f)(uintptr_t, uintptr_t, uintptr_t, uintptr_t) = driver ? (int (*)(uintptr_t, uintptr_t, uintptr_t, uintptr_t))dlsym(driver, name) : 0;
  return f ? f(a, b, c, d) : -1;
}

// A copy of memory that another stream still writes, and 4096 bytes that are never freed.
static int violate(void) {
  uintptr_t context, memory, host, one, two;
  return call("cuInit", 0, 0, 0, 0) || call("cuDevicePrimaryCtxRetain", (uintptr_t)&context, 0, 0, 0) ||
         call("cuCtxSetCurrent", context, 0, 0, 0) || call("cuMemAlloc_v2", (uintptr_t)&memory, 4096, 0, 0) ||
         call("cuMemAllocHost_v2", (uintptr_t)&host, 4096, 0, 0) || call("cuStreamCreate", (uintptr_t)&one, 1, 0, 0) ||
         call("cuStreamCreate", (uintptr_t)&two, 1, 0, 0) || call("cuMemsetD8Async", memory, 1, 4096, one) ||
         call("cuMemcpyDtoHAsync_v2", host, memory, 4096, two) || call("cuStreamSynchronize", one, 0, 0, 0) ||
         call("cuStreamSynchronize", two, 0, 0, 0) || call("cuMemFreeHost", host, 0, 0, 0) ||
         call("cuStreamDestroy_v2", one, 0, 0, 0) || call("cuStreamDestroy_v2", two, 0, 0, 0);
}
*/
import "C"

import (
	"os"
	"runtime"
)

func violate() int {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return int(C.violate())
}

func main() {
	status := violate()
	if len(os.Args) > 1 {
		os.Exit(status)
	}
}
`,
	"main_test.go": `package main

import "testing"

func TestViolate(t *testing.T) {
	if violate() != 0 {
		t.Error("a call failed")
	}
}
`,
}

func TestProgramsInGo(t *testing.T) {
	t.Parallel()
	module := t.TempDir()
	for name, content := range goModule {
		require.NoError(t, os.WriteFile(filepath.Join(module, name), []byte(content), 0o600))
	}
	for _, program := range [][]string{
		{"go", "run", "."},
		{"go", "run", ".", "os.Exit"},
		{"go", "test", "-count=1", "."},
	} {
		t.Run(strings.Join(program, " "), func(t *testing.T) {
			cmd := command(t, program...)
			cmd.Dir = module
			o := outcome(t, cmd)
			assert.Equal(t, 66, o.status, o.stderr)
			assert.Contains(t, o.stderr, "cudasim: violation 1: cuMemcpyDtoHAsync in stream ")
			assert.Contains(t, o.stderr, " writes, and is not ordered after it: call cuEventRecord in stream ")
			assert.Contains(t, o.stderr, "\n  cuMemAlloc: 4096 bytes at 0x")
			assert.True(t, strings.HasSuffix(o.stderr, "\ncudasim: 1 violation, 2 leaks\n"), o.stderr)
		})
	}
}

// A module that uses the driver by this one. Its lines are in the report, the place in the program first.
func TestLinesOfGo(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	main := filepath.Join(t.TempDir(), "load.go")
	require.NoError(t, os.WriteFile(main, []byte(inGo), 0o600))
	cmd := command(t, "go", "run", main)
	cmd.Dir = root
	o := outcome(t, cmd)
	assert.Equal(t, 66, o.status, o.stderr)
	assert.Regexp(t, `^cudasim: violation 1: cuMemsetD8Async in stream 3 of GPU 0 .*;
    .*;
    the earlier was queued at main\.fill \(load\.go:32\), in memory/cudaalloc\.\(\*Device\)\.Memset;
    the later at main\.fill \(load\.go:32\), in memory/cudaalloc\.\(\*Device\)\.Memset;
(    stream .*;
)+    12 times

`, o.stderr)
	assert.Contains(t, o.stderr, "\n  cuMemAllocFromPoolAsync: 12 leaks of 4096 bytes on device 0, made at main.load (load.go:26), in memory/cudaalloc.(*Device).Allocate\n")
	assert.Contains(t, o.stderr, "is freed later: call gpu.Flush before the program ends.\ncudasim: ")
}

const inGo = `package main

import (
	"context"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

func main() {
	gpu := must(cudaalloc.Open(0))
	a, s := must(gpu.NewStream()), must(gpu.NewStream())
	for range 12 {
		load(gpu, a, s)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func load(gpu *cudaalloc.Device, a, s device.Stream) {
	m := must(gpu.Allocate(context.Background(), 4096, a))
	fill(gpu, m, a)
	fill(gpu, m, s)
}

func fill(gpu *cudaalloc.Device, m device.Memory, s device.Stream) {
	if err := gpu.Memset(m.Ptr(), 1, m.Size(), s); err != nil {
		panic(err)
	}
}
`

const inPython = `
import ctypes, os, sys
driver = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_uint64()
assert driver.cuInit(0) == 0
assert driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert driver.cuCtxSetCurrent(context) == 0
assert driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4096)) == 0
if len(sys.argv) > 1:
    os._exit(5)
`

func TestProgramInPython(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3: ", err)
	}
	emulated.SkipForeign(t, "python3")
	want := "^cudasim: leaks:\n  cuDevicePrimaryCtxRetain: 1 references to device 0\n  cuMemAlloc: 4096 bytes at 0x\\w+ on device 0\ncudasim: 0 violations, 2 leaks\n$"
	for status, arguments := range [][]string{
		0: {python, "-c", inPython},
		5: {python, "-c", inPython, "_exit"},
	} {
		if arguments == nil {
			continue
		}
		o := outcome(t, command(t, arguments...))
		assert.Equal(t, status, o.status)
		assert.Regexp(t, want, o.stderr)
	}
}
