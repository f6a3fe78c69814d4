package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
	"github.com/arrowdevice/arrowdevice/internal/testing/goroutineleak"
)

// asCommand is set where the test binary shall be the command.
const asCommand = "CUDASIM_RUN_TEST"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	status := goroutineleak.Run(m)
	if program.folder != "" {
		os.RemoveAll(program.folder)
	}
	os.Exit(status)
}

// mostTime is for a command that hangs: none needs a tenth of it.
const mostTime = 2 * time.Minute

// command is this command with arguments, in an environment that names other drivers.
func command(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := emulated.CommandContext(bounded(t), self, arguments...)
	cmd.Env = append(os.Environ(), asCommand+"=1", "CUDASIM=devices=1", "CDEVICE_CUDA_DRIVER=none", "LD_LIBRARY_PATH=/of/others")
	return cmd
}

// A program in C that knows nothing of the simulator but the name of NVIDIA's library.
const countDevices = `
#include <dlfcn.h>
#include <stdio.h>

int main(void) {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return puts(dlerror());
  int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
  int (*count)(int*) = (int (*)(int*))dlsym(driver, "cuDeviceGetCount");
  int devices = 0;
  if (init(0) != 0 || count(&devices) != 0) return 1;
  printf("%d devices, with pools: %d\n", devices, dlsym(driver, "cuMemPoolCreate") != 0);
  return 7;
}
`

func TestProgramInC(t *testing.T) {
	program := filepath.Join(t.TempDir(), "count devices")
	build := emulated.Compiler("-x", "c", "-o", program, "-", "-ldl")
	build.Stdin = strings.NewReader(countDevices)
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for want, flags := range map[string][]string{
		"2 devices, with pools: 1\n": {"-machine", "devices=2"},
		"1 devices, with pools: 1\n": nil,
		"3 devices, with pools: 0\n": {"-machine", "devices=3,version=13000", "-missing", "cuMemPoolCreate"},
	} {
		cmd := command(t, append(flags, emulated.Words(program)...)...)
		out, _ := cmd.CombinedOutput()
		assert.Equal(t, want, string(out))
		assert.Equal(t, 7, cmd.ProcessState.ExitCode(), "the exit status is the program's")
	}
}

func TestEnvironmentHasEachNameOnce(t *testing.T) {
	env := environment([]string{"A=1", "LD_LIBRARY_PATH=/of/others", "CUDASIM=devices=1"}, "/cache/libcuda.so.1", "devices=2")
	slices.Sort(env)
	assert.Equal(t, []string{
		"A=1", "CDEVICE_CUDA_DRIVER=/cache/libcuda.so.1", "CUDASIM=devices=2",
		"LD_LIBRARY_PATH=/cache:/of/others", "NUMBA_CUDA_DRIVER=/cache/libcuda.so.1",
	}, env)
}

func TestMistakesAreNamed(t *testing.T) {
	for want, arguments := range map[string][]string{
		"usage: run": {},
		"no-such-program\": executable file not found":                {"no-such-program"},
		"option \"version=new\"":                                      {"-machine", "version=new", "true"},
		"the library has no function cuNothing that could be missing": {"-missing", "cuNothing", "true"},
	} {
		out, err := command(t, arguments...).CombinedOutput()
		assert.Error(t, err)
		assert.Contains(t, string(out), want)
	}
}
