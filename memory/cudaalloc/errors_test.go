package cudaalloc_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Errors name the closed object and its handle.
func TestUseAfterCloseNamesTheHandle(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	s, err := gpu.NewStream()
	require.NoError(t, err)
	require.NoError(t, s.Close())
	e, err := gpu.NewEvent()
	require.NoError(t, err)
	require.NoError(t, e.Close())
	borrowed, err := gpu.WrapStream(0)
	require.NoError(t, err)
	require.NoError(t, borrowed.Close())

	const stream, event = `^cuda: stream 0x[0-9a-f]+ of cuda:0: used after it was closed$`, `^cuda: event 0x[0-9a-f]+ of cuda:0: used after it was closed$`
	assert.Regexp(t, stream, s.Synchronize(background))
	assert.ErrorIs(t, s.Synchronize(background), cudaalloc.ErrClosed)
	assert.ErrorIs(t, e.Synchronize(background), cudaalloc.ErrClosed)
	assert.NoError(t, s.Close(), "twice")
	assert.NoError(t, e.Close(), "twice")
	assert.Regexp(t, stream, gpu.Memset(0, 0, 1, s))
	assert.Regexp(t, `^cuda: stream 0x0 of cuda:0: used after`, borrowed.Synchronize(background))
	assert.Regexp(t, event, e.Synchronize(background))
	assert.Regexp(t, event, gpu.Legacy().Record(e))
	_, err = e.Query()
	assert.Regexp(t, event, err)

	mem, err := gpu.Allocate(background, 100, nil)
	require.NoError(t, err)
	assert.ErrorContains(t, mem.FreeAfter(e), "cuda: free memory of cuda:0 after an event: cuda: event 0x")
	assert.Regexp(t, `^cuda: 100 bytes of cuda:0 memory at 0x[0-9a-f]+: freed twice$`, mem.Free(nil))
}

// A file that is not a driver is not reported as an old driver.
func TestLibraryThatIsNoDriver(t *testing.T) {
	const libc = "libc.so.6"
	_, err := cudaalloc.Open(0, cudaalloc.WithDriver(libc))
	assert.ErrorIs(t, err, device.ErrNotSupported)
	assert.ErrorContains(t, err, "cuda: libc.so.6 is not a CUDA driver, it has no cuInit: WithDriver names it; name the driver's library, usually libcuda.so.1")
	assert.NotContains(t, err.Error(), "too old")
}

// A path that the environment names is called that: processes of their own, because the
// environment is read when the driver is loaded.
func TestDriverOfTheEnvironment(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "libcuda.so.1")
	none, err := cudasim.Build()
	require.NoError(t, err)
	for name, row := range map[string]struct {
		env  []string
		want string
	}{
		"no driver":      {[]string{"CDEVICE_CUDA_DRIVER=" + missing}, "cannot open shared object file: No such file or directory: the environment variable CDEVICE_CUDA_DRIVER names it; name the driver's library"},
		"not a driver":   {[]string{"CDEVICE_CUDA_DRIVER=libc.so.6"}, "libc.so.6 is not a CUDA driver, it has no cuInit: the environment variable CDEVICE_CUDA_DRIVER names it"},
		"the system's":   {[]string{"CDEVICE_CUDA_DRIVER=", "LD_LIBRARY_PATH="}, "install NVIDIA's driver (nvidia-smi lists the GPUs if there is one)"},
		"hidden GPUs":    {[]string{"CDEVICE_CUDA_DRIVER=" + none, "CUDASIM=" + cudasim.Options{NoDevices: true}.String(), "CUDA_VISIBLE_DEVICES=-1"}, `CUDA_VISIBLE_DEVICES="-1" hides all other GPUs from this process`},
		"one hidden GPU": {[]string{"CDEVICE_CUDA_DRIVER=" + none, "CUDASIM=", "CUDA_VISIBLE_DEVICES=3"}, `(CUDA_VISIBLE_DEVICES="3" hides all other GPUs from this process)`},
	} {
		t.Run(name, func(t *testing.T) {
			child := exec.Command(os.Args[0], "-test.run=^TestDriverOfTheEnvironmentChild$", "-test.v")
			child.Env = append(append(os.Environ(), "CDEVICE_TEST_CHILD=message"), row.env...)
			out, err := child.CombinedOutput()
			assert.NoError(t, err, string(out))
			if name == "the system's" && !strings.Contains(string(out), "no CUDA driver") {
				t.Skip("this machine has a driver")
			}
			assert.Contains(t, string(out), row.want)
		})
	}
}

func TestDriverOfTheEnvironmentChild(t *testing.T) {
	if os.Getenv("CDEVICE_TEST_CHILD") != "message" {
		t.Skip("a part of TestDriverOfTheEnvironment")
	}
	_, err := cudaalloc.Open(1)
	if err != nil {
		assert.ErrorIs(t, err, device.ErrNotSupported)
	}
	t.Log(err)
}
