package cuda_test

import (
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/testing/heap"
)

func TestInspect(t *testing.T) {
	sim := cudasim.Load(t, cudasim.Options{})
	whole, err := cuda.Inspect(sim.Path())
	require.NoError(t, err)
	file, err := filepath.EvalSymlinks(sim.Path())
	require.NoError(t, err)
	assert.Equal(t, &cuda.Library{Path: sim.Path(), File: file, Functions: whole.Functions}, whole)
	assert.Greater(t, whole.Functions, 50)
	assert.True(t, whole.Has("cuInit"))
	assert.False(t, whole.Has("cuNothing"))
	assert.Empty(t, called(sim), "a library is inspected without a call")

	old, err := cudasim.Build("cuMemHostAlloc", "cuMemPoolCreate", "cuCtxGetId")
	require.NoError(t, err)
	lacking, err := cuda.Inspect(old)
	require.NoError(t, err)
	assert.Equal(t, []string{"cuMemHostAlloc"}, lacking.Needed)
	assert.Equal(t, []string{"cuMemPoolCreate", "cuCtxGetId"}, lacking.Optional)

	_, err = cuda.Inspect(filepath.Join(t.TempDir(), "none"))
	assert.ErrorIs(t, err, device.ErrNotSupported)
}

// A library that is no driver has none of the functions, and no file is known for it.
func TestInspectAnotherLibrary(t *testing.T) {
	l, err := cuda.Inspect(map[string]string{"linux": "libc.so.6", "darwin": "libSystem.dylib", "windows": "kernel32.dll"}[runtime.GOOS])
	require.NoError(t, err)
	assert.Len(t, append(l.Needed, l.Optional...), l.Functions)
	assert.Empty(t, l.File)
	assert.False(t, l.Has("cuInit"))
}

func TestFactsOfADevice(t *testing.T) {
	_, ctx := retained(t, cudasim.Options{})
	keeps, err := ctx.DefaultPoolKeeps()
	require.NoError(t, err)
	assert.Zero(t, keeps, "as the manual has it")
	one, err := ctx.Attribute(cuda.UnifiedAddressing)
	require.NoError(t, err)
	assert.Equal(t, 1, one)

	_, lacks := retained(t, cudasim.Options{Missing: []string{"cuDeviceGetDefaultMemPool", "cuMemcpy"}})
	_, err = lacks.DefaultPoolKeeps()
	assert.ErrorIs(t, err, device.ErrNotSupported)
	assert.ErrorIs(t, lacks.CopyNow(0, 0, 8), device.ErrNotSupported)
}

func TestCopyNow(t *testing.T) {
	_, ctx := retained(t, cudasim.Options{})
	there, err := ctx.NewMemory(8)
	require.NoError(t, err)
	from, to := []byte("going to"), make([]byte, 8)
	at := func(b []byte) device.Ptr { return device.Ptr(heap.AddressOf(b)) }
	require.NoError(t, ctx.CopyNow(there, at(from), 8))
	require.NoError(t, ctx.CopyNow(at(to), there, 8))
	assert.Equal(t, "going to", string(to))
	assert.ErrorIs(t, ctx.CopyNow(there, at(from), 9), cuda.InvalidValue)
	assert.NoError(t, ctx.FreeMemory(there))
}
