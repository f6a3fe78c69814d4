package cudaalloc_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

func TestWithoutADriver(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "libcuda.so.1")
	for range 2 {
		_, err := cudaalloc.Open(0, cudaalloc.WithDriver(missing))
		assert.ErrorIs(t, err, device.ErrNotSupported)
		assert.ErrorContains(t, err, missing)
		assert.ErrorContains(t, err, "WithDriver names it; name the driver's library")
		_, err = cudaalloc.Devices(cudaalloc.WithDriver(missing))
		assert.ErrorIs(t, err, device.ErrNotSupported)
	}
	text := filepath.Join(t.TempDir(), "libcuda.so.1")
	require.NoError(t, os.WriteFile(text, []byte("no library"), 0o600))
	_, err := cudaalloc.Open(0, cudaalloc.WithDriver(text))
	assert.ErrorIs(t, err, device.ErrNotSupported)
}

func TestNoDevices(t *testing.T) {
	sim := cudasim.Load(t, cudasim.Options{NoDevices: true})
	_, err := cudaalloc.Open(0, cudaalloc.WithDriver(sim.Path()))
	assert.ErrorIs(t, err, device.ErrNotSupported)
	assert.ErrorIs(t, err, cudaalloc.NoDevice)
	assert.ErrorContains(t, err, "cuda: cuInit(0): CUDA_ERROR_NO_DEVICE: ")
}

func TestOrdinalsOutOfRange(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	for _, ordinal := range []int64{-1, 2, 1 << 40} {
		_, err := cudaalloc.Open(ordinal, cudaalloc.WithDriver(m.Sim.Path()))
		assert.ErrorIs(t, err, device.ErrNotSupported)
		assert.ErrorContains(t, err, "the driver has 2 devices, numbered from 0")
	}
}

// An old driver lacks symbols. One that everything needs is an error of Open; one
// that a feature needs is an error of that feature.
func TestOldDriver(t *testing.T) {
	t.Run("needed", func(t *testing.T) {
		sim := cudasim.Load(t, cudasim.Options{Missing: []string{"cuMemHostAlloc"}})
		_, err := cudaalloc.Open(0, cudaalloc.WithDriver(sim.Path()))
		assert.ErrorIs(t, err, device.ErrNotSupported)
		assert.ErrorContains(t, err, "has no cuMemHostAlloc: the driver is too old")
	})
	t.Run("optional", func(t *testing.T) {
		m := cudatest.Simulated(t, cudasim.Options{Missing: []string{"cuMemPrefetchAsync", "cuMemPoolCreate"}})
		gpu := m.GPUs[0]
		managed, err := gpu.Managed().Allocate(background, 100, nil)
		require.NoError(t, err)
		err = gpu.Prefetch(managed.Ptr(), 100, nil)
		assert.ErrorIs(t, err, device.ErrNotSupported)
		assert.ErrorContains(t, err, "has no cuMemPrefetchAsync: the driver is too old")
		assert.NoError(t, managed.Free(nil))
		own, err := gpu.Allocate(background, 100, nil)
		require.NoError(t, err)
		assert.Equal(t, 1, m.Sim.Calls("cuMemAlloc"), "no pools: plain memory")
		assert.NoError(t, own.Free(nil))
	})
}

func TestWithoutManagedMemory(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{NoManaged: true})
	_, err := m.GPUs[0].Managed().Allocate(background, 1, nil)
	assert.ErrorIs(t, err, device.ErrNotSupported)
	_, err = cudaalloc.NewManagedAllocator(m.GPUs[0])
	assert.ErrorIs(t, err, device.ErrNotSupported)
}

func TestListingOpensNothing(t *testing.T) {
	sim := cudasim.Load(t, cudasim.Options{Devices: 3})
	infos, err := cudaalloc.Devices(cudaalloc.WithDriver(sim.Path()))
	require.NoError(t, err)
	require.Len(t, infos, 3)
	ids := map[[16]byte]bool{}
	for i, info := range infos {
		assert.EqualValues(t, i, info.Ordinal)
		assert.NotEmpty(t, info.Name)
		assert.Positive(t, info.TotalMemory)
		assert.Positive(t, info.ComputeCapability[0])
		assert.Regexp(t, `^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.0$`, strings.ToLower(info.PCIBusID))
		assert.Contains(t, info.String(), info.Name)
		ids[info.UUID] = true
	}
	assert.Len(t, ids, 3)
	assert.Zero(t, sim.Calls("cuDevicePrimaryCtxRetain"))
}

// However often and on however many goroutines a GPU is opened, its primary context
// is retained once.
func TestGPUOpenedOnce(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for i, gpu := range m.GPUs {
					again, err := cudaalloc.Open(int64(i), m.Driver())
					assert.NoError(t, err)
					assert.Same(t, gpu, again)
				}
			})
		}
		wg.Wait()
		if m.Sim != nil {
			assert.Equal(t, len(m.GPUs), m.Sim.Calls("cuDevicePrimaryCtxRetain"))
		}
		for i, gpu := range m.GPUs {
			assert.Equal(t, device.ID{Type: device.CUDA, Ordinal: int64(i)}, gpu.ID())
			assert.Equal(t, device.ID{Type: device.CUDAHost, Ordinal: int64(i)}, gpu.Pinned().ID())
			assert.Equal(t, device.ID{Type: device.CUDAManaged, Ordinal: int64(i)}, gpu.Managed().ID())
			assert.Equal(t, []bool{false, true}, []bool{gpu.CPUAccessible(), gpu.Pinned().CPUAccessible()})
			if _, err := cudaalloc.NewManagedAllocator(gpu); gpu.Managed().CPUAccessible() {
				assert.NoError(t, err)
			} else {
				assert.ErrorIs(t, err, device.ErrNotSupported)
			}
			assert.Same(t, gpu, gpu.Pinned().Own())
			assert.Same(t, gpu.Managed(), gpu.Pinned().Managed())
			assert.NotZero(t, gpu.Context())
			free, total, err := gpu.MemoryInfo()
			assert.NoError(t, err)
			assert.LessOrEqual(t, free, total)
			assert.Positive(t, free)
		}
	})
}

// The registry opens GPUs of the default driver, which a process has one of: hence
// processes of their own.
func TestRegistry(t *testing.T) {
	built, err := cudasim.Build()
	require.NoError(t, err)
	for name, env := range map[string][]string{
		"two GPUs":  {"CDEVICE_CUDA_DRIVER=" + built, cudasim.Options{Devices: 2}.String()},
		"no GPU":    {"CDEVICE_CUDA_DRIVER=" + built, cudasim.Options{NoDevices: true}.String()},
		"no driver": {"CDEVICE_CUDA_DRIVER=" + filepath.Join(t.TempDir(), "none"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			child := exec.Command(os.Args[0], "-test.run=^TestRegistryChild$", "-test.v")
			child.Env = append(os.Environ(), "CDEVICE_TEST_CHILD="+name, env[0], "CUDASIM="+env[1])
			out, err := child.CombinedOutput()
			assert.NoError(t, err, string(out))
			assert.Contains(t, string(out), "--- PASS: TestRegistryChild")
		})
	}
}

func TestRegistryChild(t *testing.T) {
	switch os.Getenv("CDEVICE_TEST_CHILD") {
	case "two GPUs":
		for _, typ := range []device.Type{device.CUDA, device.CUDAHost, device.CUDAManaged} {
			for ordinal := range int64(2) {
				id := device.ID{Type: typ, Ordinal: ordinal}
				d, err := device.Open(id)
				require.NoError(t, err)
				assert.Equal(t, id, d.ID())
				again, err := device.Open(id)
				require.NoError(t, err)
				assert.Same(t, d, again)
				own, err := cudaalloc.Open(ordinal)
				require.NoError(t, err)
				assert.Same(t, own, d.(*cudaalloc.Device).Own())
			}
			_, err := device.Open(device.ID{Type: typ, Ordinal: 2})
			assert.ErrorIs(t, err, device.ErrNotSupported)
		}
		_, err := device.Open(device.ID{Type: device.CUDA, Ordinal: device.NoOrdinal})
		assert.ErrorIs(t, err, device.ErrNotSupported)
		anyGPU, err := device.Open(device.ID{Type: device.CUDAHost, Ordinal: device.NoOrdinal})
		require.NoError(t, err, "page-locked memory of no device in particular")
		assert.Equal(t, device.ID{Type: device.CUDAHost, Ordinal: 0}, anyGPU.ID())
		t.Run("an imported event is waited for", importedEvent)
		t.Run("a reset GPU is opened anew", resetAndOpened)
	case "no GPU", "no driver":
		for _, typ := range []device.Type{device.CUDA, device.CUDAHost, device.CUDAManaged} {
			_, err := device.Open(device.ID{Type: typ, Ordinal: 0})
			assert.ErrorIs(t, err, device.ErrNotSupported)
		}
		_, err := cudaalloc.Devices()
		assert.ErrorIs(t, err, device.ErrNotSupported)
	default:
		t.Log("a part of TestRegistry")
	}
}

func TestErrorsNameTheCall(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Memory: 1 << 30, NoPools: true})
	_, err := m.GPUs[0].Allocate(background, 1<<31, nil)
	assert.EqualError(t, err, "cuda: cuMemAlloc(2147483648) on cuda:0: CUDA_ERROR_OUT_OF_MEMORY: out of memory")
	assert.ErrorIs(t, err, cudaalloc.OutOfMemory)
	assert.NotErrorIs(t, err, cudaalloc.InvalidValue)
	assert.NotErrorIs(t, err, device.ErrNotSupported)
	var failed *cudaalloc.Error
	require.True(t, errors.As(err, &failed))
	assert.Equal(t, "cuMemAlloc", failed.Call)
	assert.Equal(t, []any{int64(1 << 31)}, failed.Args)
	assert.Equal(t, "cuda:0", failed.Device)

	s, err := m.GPUs[0].WrapStream(0xdead0)
	require.NoError(t, err, "a borrowed handle is believed until it is used")
	e, err := m.GPUs[0].NewEvent()
	require.NoError(t, err)
	err = s.Record(e)
	assert.ErrorIs(t, err, cudaalloc.InvalidHandle)
	assert.ErrorContains(t, err, "0xdead0) on cuda:0: CUDA_ERROR_INVALID_HANDLE")
	assert.NoError(t, e.Close())
	_, err = m.GPUs[0].WrapEvent(0)
	assert.Error(t, err)
	assert.Error(t, m.GPUs[0].Legacy().Record(nil))
}

// The registry has no GPU of a primary context that was reset.
func resetAndOpened(t *testing.T) {
	types := []device.Type{device.CUDA, device.CUDAHost, device.CUDAManaged}
	var before []device.Device
	for _, typ := range types {
		d, err := device.Open(device.ID{Type: typ, Ordinal: 1})
		require.NoError(t, err)
		before = append(before, d)
	}
	driver, err := cuda.Open("")
	require.NoError(t, err)
	dev, err := driver.Device(1)
	require.NoError(t, err)
	require.NoError(t, dev.ResetPrimary())
	own, err := cudaalloc.Open(1)
	require.NoError(t, err)
	for i, typ := range types {
		d, err := device.Open(device.ID{Type: typ, Ordinal: 1})
		require.NoError(t, err)
		assert.NotSame(t, before[i], d)
		assert.Same(t, own, d.(*cudaalloc.Device).Own())
	}
	works(t, own)
}

// A batch in page-locked memory whose event is pending: the host view waits for it.
func importedEvent(t *testing.T) {
	gpu, err := cudaalloc.Open(0)
	require.NoError(t, err)
	mem := cudatest.Pinned(t, gpu)
	b := array.NewInt64Builder(mem)
	b.AppendValues([]int64{1, 2, 3}, nil)
	arr := b.NewInt64Array()
	b.Release()
	wrapped, err := cdevice.WrapArray(arr, gpu.Pinned())
	require.NoError(t, err)
	var out abi.ArrowDeviceArray
	var schema abi.ArrowSchema
	require.NoError(t, cdevice.ExportArray(wrapped, abi.As[cdevice.CArrowDeviceArray](&out), cdevice.SchemaFromPtr(uintptr(unsafe.Pointer(&schema)))))
	wrapped.Release()

	s, err := gpu.NewStream()
	require.NoError(t, err)
	open, err := cudaalloc.Hold(s)
	require.NoError(t, err)
	values := cudatest.Pointer(arrow.Int64Traits.CastToBytes(arr.Int64Values()))
	require.NoError(t, gpu.Memset(values, 7, 24, s))
	e, err := gpu.NewEvent()
	require.NoError(t, err)
	require.NoError(t, s.Record(e))
	handle := new(uintptr)
	*handle = e.Handle()
	out.SyncEvent = uintptr(unsafe.Pointer(handle))

	imported, err := cdevice.ImportArray(abi.As[cdevice.CArrowDeviceArray](&out), cdevice.SchemaFromPtr(uintptr(unsafe.Pointer(&schema))))
	require.NoError(t, err, "does not wait")
	assert.Equal(t, []int64{1, 2, 3}, arr.Int64Values())
	ctx, cancel := context.WithCancel(background)
	cancel()
	_, err = imported.HostView(ctx)
	assert.ErrorIs(t, err, context.Canceled)
	open()
	view, err := imported.HostView(background)
	require.NoError(t, err)
	const sevens = 0x0707070707070707
	assert.Equal(t, []int64{sevens, sevens, sevens}, view.(*array.Int64).Int64Values())
	runtime.KeepAlive(handle)
	view.Release()
	imported.Release()
	arr.Release()
	require.NoError(t, e.Close())
	require.NoError(t, s.Close())
}
