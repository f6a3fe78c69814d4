package cudaalloc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// The error about a driver that cannot be used says why, and what to do.
func TestDriversThatCannotBeUsed(t *testing.T) {
	old := cudasim.Load(t, cudasim.Options{Missing: []string{"cuMemHostAlloc"}})
	missing, text := filepath.Join(t.TempDir(), "libcuda.so.1"), filepath.Join(t.TempDir(), "libcuda.so.1")
	require.NoError(t, os.WriteFile(text, []byte("no library"), 0o600))
	const libc, advice = "libc.so.6", "WithDriver names it; name the driver's library"
	for name, row := range map[string]struct{ path, want string }{
		"missing":    {missing, missing + ": cannot open shared object file: No such file or directory: " + advice},
		"no library": {text, text},
		"no driver":  {libc, "cuda: libc.so.6 is not a CUDA driver, it has no cuInit: " + advice + ", usually libcuda.so.1"},
		"no devices": {cudasim.Load(t, cudasim.Options{NoDevices: true}).Path(), "cuda: cuInit(0): CUDA_ERROR_NO_DEVICE: "},
		"old":        {old.Path(), "has no cuMemHostAlloc: the driver is too old"},
	} {
		for range 2 {
			_, err := cudaalloc.Open(0, cudaalloc.WithDriver(row.path))
			assert.ErrorIs(t, err, device.ErrNotSupported, name)
			assert.ErrorContains(t, err, row.want, name)
			assert.Equal(t, name == "no devices", errors.Is(err, cudaalloc.NoDevice), name)
			assert.Equal(t, name == "old", strings.Contains(err.Error(), "too old"), name)
			_, err = cudaalloc.Devices(cudaalloc.WithDriver(row.path))
			assert.ErrorIs(t, err, device.ErrNotSupported, name)
		}
	}
}

// An old driver lacks functions. One that a feature needs is an error of that feature.
func TestOldDriver(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{Missing: []string{"cuMemPrefetchAsync", "cuMemPoolCreate"}})
	err := g.Prefetch(g.M.On(t, g.Managed()).Memory(100, nil).Ptr(), 100, nil)
	assert.ErrorIs(t, err, device.ErrNotSupported)
	assert.ErrorContains(t, err, "has no cuMemPrefetchAsync: the driver is too old")
	g.Memory(100, nil)
	assert.Equal(t, 1, g.M.Sim.Calls("cuMemAlloc"), "no pools: plain memory")
}

func TestOrdinalsOutOfRange(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	for _, ordinal := range []int64{-1, 2, 1 << 40} {
		_, err := cudaalloc.Open(ordinal, m.Driver())
		assert.ErrorIs(t, err, device.ErrNotSupported)
		assert.ErrorContains(t, err, "the driver has 2 devices, numbered from 0")
	}
}

func TestWithoutManagedMemory(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{NoManaged: true})
	_, err := m.GPUs[0].Managed().Allocate(background, 1, nil)
	assert.ErrorIs(t, err, device.ErrNotSupported)
	_, err = cudaalloc.NewManagedAllocator(m.GPUs[0])
	assert.ErrorIs(t, err, device.ErrNotSupported)
}

// Hardware coherency is of each GPU, and includes concurrent managed access.
func TestHardwareCoherent(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2, Coherent: 1})
	for i, gpu := range m.GPUs {
		for _, dev := range []*cudaalloc.Device{gpu.Own(), gpu.Shareable(), gpu.Pinned(), gpu.Managed()} {
			assert.Equal(t, i == 0, dev.HardwareCoherent(), "%s of %s", dev.MemoryKind(), gpu.ID())
		}
		assert.False(t, gpu.CPUAccessible() || gpu.Shareable().CPUAccessible())
	}
	m = cudatest.Simulated(t, cudasim.Options{Coherent: 1, NoConcurrentManaged: true})
	assert.False(t, m.GPUs[0].HardwareCoherent())
}

// A driver is listed without opening its GPUs, and asked about addresses only while one of them is open.
func TestListingOpensNothing(t *testing.T) {
	sim := cudasim.Load(t, cudasim.Options{Devices: 3})
	driver := cudaalloc.WithDriver(sim.Path())
	infos, err := cudaalloc.Devices(driver)
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

	plain := make([]byte, 100)
	asked := func() int {
		sim.ResetCounters()
		found, err := device.Lookup(cudatest.Pointer(plain))
		require.NoError(t, err)
		assert.Equal(t, device.CPUDevice().ID(), found.ID)
		return sim.Calls("")
	}
	assert.Zero(t, asked())
	gpu, err := cudaalloc.Open(0, driver)
	require.NoError(t, err)
	assert.NotZero(t, asked())
	require.NoError(t, cudaalloc.Close(gpu))
	assert.Zero(t, asked())
}

// device.Lookup knows the memory of every GPU of a driver of which one is open.
func TestGPULookupOfTheProcess(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{Devices: 2})
	for _, d := range m.Devices(t) {
		mem := m.On(t, d).Memory(100, nil)
		found, err := device.Lookup(mem.Ptr() + 10)
		require.NoError(t, err)
		assert.Equal(t, d.ID(), found.ID)
		assert.True(t, found.Contains(mem.Ptr(), 100))
	}
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
			assert.NotZero(t, gpu.Context())
			free, total, err := gpu.MemoryInfo()
			assert.NoError(t, err)
			assert.LessOrEqual(t, free, total)
			assert.Positive(t, free)
		}
	})
}

// The devices of a GPU have a kind of memory each, although two of them have the same ID.
func TestMemoryKinds(t *testing.T) {
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	for kind, want := range map[device.MemoryKind]*cudaalloc.Device{
		device.OwnMemory: gpu, device.ShareableMemory: gpu.Shareable(), device.PinnedMemory: gpu.Pinned(), device.ManagedMemory: gpu.Managed(),
	} {
		assert.Equal(t, kind, want.MemoryKind())
		assert.Same(t, gpu, want.Own())
		for _, from := range []*cudaalloc.Device{gpu, gpu.Managed()} {
			got, err := from.WithMemory(kind)
			require.NoError(t, err)
			assert.Same(t, want, got, kind.String())
		}
	}
	_, err := gpu.WithMemory(9)
	assert.ErrorContains(t, err, "no memory of kind memory_kind(9)")
	assert.ErrorIs(t, err, device.ErrNotSupported)
}

var cudaTypes = []device.Type{device.CUDA, device.CUDAHost, device.CUDAManaged}

// The registry opens GPUs of the default driver, which the environment may name and a process has one of: hence
// processes of their own.
func TestRegistry(t *testing.T) {
	built := cudasim.Load(t, cudasim.Options{}).Path()
	missing := filepath.Join(t.TempDir(), "libcuda.so.1")
	simulated := func(o cudasim.Options, visible string) []string {
		return []string{"CDEVICE_CUDA_DRIVER=" + built, "CUDASIM=" + o.String(), "CUDA_VISIBLE_DEVICES=" + visible}
	}
	for name, row := range map[string]struct {
		gpus int
		env  []string
		want string // in the error about one more GPU
	}{
		"two GPUs":       {2, simulated(cudasim.Options{Devices: 2}, "0,1"), "the driver has 2 devices"},
		"hidden GPUs":    {0, simulated(cudasim.Options{NoDevices: true}, "-1"), `CUDA_VISIBLE_DEVICES="-1" hides all other GPUs from this process`},
		"one hidden GPU": {1, simulated(cudasim.Options{}, "3"), `(CUDA_VISIBLE_DEVICES="3" hides all other GPUs from this process)`},
		"no driver": {
			0, []string{"CDEVICE_CUDA_DRIVER=" + missing},
			"No such file or directory: the environment variable CDEVICE_CUDA_DRIVER names it; name the driver's library",
		},
		"not a driver": {
			0, []string{"CDEVICE_CUDA_DRIVER=libc.so.6"},
			"libc.so.6 is not a CUDA driver, it has no cuInit: the environment variable CDEVICE_CUDA_DRIVER names it",
		},
		"the system's": {-1, []string{"CDEVICE_CUDA_DRIVER=", "LD_LIBRARY_PATH="}, "install NVIDIA's driver (nvidia-smi lists the GPUs if there is one)"},
	} {
		t.Run(name, func(t *testing.T) {
			child := emulated.Command(os.Args[0], "-test.run=^TestRegistryChild$", "-test.v")
			child.Env = append(append(os.Environ(), fmt.Sprint("CDEVICE_TEST_GPUS=", row.gpus)), row.env...)
			out, err := child.CombinedOutput()
			assert.NoError(t, err, string(out))
			assert.Contains(t, string(out), "--- PASS: TestRegistryChild")
			if row.gpus < 0 && !strings.Contains(string(out), "no CUDA driver") {
				t.Skip("this machine has a driver")
			}
			assert.Contains(t, string(out), row.want)
		})
	}
}

func TestRegistryChild(t *testing.T) {
	var gpus int64
	if _, err := fmt.Sscan(os.Getenv("CDEVICE_TEST_GPUS"), &gpus); err != nil {
		t.Skip("a part of TestRegistry")
	}
	infos, err := cudaalloc.Devices()
	if gpus < 0 {
		gpus = int64(len(infos))
	}
	assert.Len(t, infos, int(gpus))
	assert.Equal(t, gpus == 0, errors.Is(err, device.ErrNotSupported), err)
	uuids, err := device.UUIDs(device.CUDA)
	assert.Equal(t, gpus == 0, errors.Is(err, device.ErrNotSupported), err)
	for _, typ := range cudaTypes {
		for ordinal := range gpus {
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
			uuid, err := own.UUID()
			require.NoError(t, err)
			assert.Equal(t, uuid, uuids[ordinal])
		}
		_, err := device.Open(device.ID{Type: typ, Ordinal: gpus})
		assert.ErrorIs(t, err, device.ErrNotSupported)
	}
	_, err = cudaalloc.Open(gpus)
	t.Log(err)
	_, err = device.UUIDs(device.ROCM)
	assert.ErrorIs(t, err, device.ErrNotSupported)
	if gpus < 2 {
		return
	}
	_, err = device.Open(device.ID{Type: device.CUDA, Ordinal: device.NoOrdinal})
	assert.ErrorIs(t, err, device.ErrNotSupported)
	anyGPU, err := device.Open(device.ID{Type: device.CUDAHost, Ordinal: device.NoOrdinal})
	require.NoError(t, err, "page-locked memory of no device in particular")
	assert.Equal(t, device.ID{Type: device.CUDAHost, Ordinal: 0}, anyGPU.ID())
	t.Run("an imported event is waited for", importedEvent)
	t.Run("a reset GPU is opened anew", resetAndOpened)
}

// The registry has no GPU of a primary context that was reset.
func resetAndOpened(t *testing.T) {
	var before []device.Device
	for _, typ := range cudaTypes {
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
	for i, typ := range cudaTypes {
		d, err := device.Open(device.ID{Type: typ, Ordinal: 1})
		require.NoError(t, err)
		assert.NotSame(t, before[i], d)
		assert.Same(t, own, d.(*cudaalloc.Device).Own())
	}
	works(t, own)
}

// A batch in page-locked memory whose event is pending: the host view waits for it.
func importedEvent(t *testing.T) {
	g := cudatest.OneGPU(t, cudasim.Options{})
	b := array.NewInt64Builder(cudatest.Pinned(t, g.Device))
	b.AppendValues([]int64{1, 2, 3}, nil)
	arr := b.NewInt64Array()
	b.Release()
	defer arr.Release()
	wrapped, err := cdevice.WrapArray(arr, g.Pinned())
	require.NoError(t, err)
	var out abi.ArrowDeviceArray
	var schema abi.ArrowSchema
	cOut, cSchema := abi.As[cdevice.CArrowDeviceArray](&out), cdevice.SchemaFromPtr(uintptr(unsafe.Pointer(&schema)))
	require.NoError(t, cdevice.ExportArray(wrapped, cOut, cSchema))
	wrapped.Release()

	s, open := g.Held()
	g.Fill(cudatest.Pointer(arrow.Int64Traits.CastToBytes(arr.Int64Values())), 7, 24, s)
	handle := new(uintptr)
	*handle = g.Event(s).Handle()
	out.SyncEvent = uintptr(unsafe.Pointer(handle))

	imported, err := cdevice.ImportArray(cOut, cSchema)
	require.NoError(t, err, "does not wait")
	defer imported.Release()
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
}
