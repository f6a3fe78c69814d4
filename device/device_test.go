package device_test

import (
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/device/devicetest"
)

func TestCPU(t *testing.T) { devicetest.TestDevice(t, device.CPUDevice()) }

// core is a device without optional interfaces.
type core struct{ device.Device }

// The contract of the core is tested without the optional interfaces.
func TestCoreOfADevice(t *testing.T) {
	all, few := devicetest.Rules(device.CPUDevice()), devicetest.Rules(core{device.CPUDevice()}, devicetest.WithUnregistered())
	assert.Less(t, len(few), len(all))
	devicetest.TestDevice(t, core{device.CPUDevice()}, devicetest.WithUnregistered())
}

// The values and names of the specification.
func TestTypes(t *testing.T) {
	for want, row := range map[device.Type]struct {
		value int32
		name  string
	}{
		device.CPU: {1, "cpu"}, device.CUDA: {2, "cuda"}, device.CUDAHost: {3, "cuda_host"}, device.OpenCL: {4, "opencl"},
		device.Vulkan: {7, "vulkan"}, device.Metal: {8, "metal"}, device.VPI: {9, "vpi"}, device.ROCM: {10, "rocm"},
		device.ROCMHost: {11, "rocm_host"}, device.ExtDev: {12, "ext_dev"}, device.CUDAManaged: {13, "cuda_managed"},
		device.OneAPI: {14, "oneapi"}, device.WebGPU: {15, "webgpu"}, device.Hexagon: {16, "hexagon"},
	} {
		assert.EqualValues(t, row.value, want)
		assert.Equal(t, row.name, want.String())
	}
	assert.Equal(t, "device_type(17)", device.Type(17).String())
}

func TestCPUAccessibleTypes(t *testing.T) {
	for typ := device.Type(-1); typ < 20; typ++ {
		want := typ == device.CPU || typ == device.CUDAHost || typ == device.ROCMHost || typ == device.CUDAManaged
		assert.Equal(t, want, typ.CPUAccessible(), typ)
	}
}

func TestIDString(t *testing.T) {
	assert.Equal(t, "cpu", device.CPUDevice().ID().String())
	assert.Equal(t, "cuda:1", device.ID{Type: device.CUDA, Ordinal: 1}.String())
}

func TestOpenCPUByEitherNumber(t *testing.T) {
	for _, ordinal := range []int64{device.NoOrdinal, 0} {
		d, err := device.Open(device.ID{Type: device.CPU, Ordinal: ordinal})
		require.NoError(t, err)
		assert.Equal(t, device.CPUDevice(), d)
	}
	_, err := device.Open(device.ID{Type: device.CPU, Ordinal: 1})
	assert.ErrorIs(t, err, device.ErrNotSupported)
}

func TestOpenWithoutABackend(t *testing.T) {
	_, err := device.Open(device.ID{Type: device.Metal, Ordinal: 0})
	assert.ErrorIs(t, err, device.ErrNotSupported)
	assert.EqualError(t, err, "device: open metal:0: no backend is registered for metal: this module has none, and Register adds one: not supported")
}

func TestRegister(t *testing.T) {
	opens := 0
	failure := errors.New("out of order")
	t.Cleanup(func() { device.Forget(device.VPI) })
	device.Register(device.VPI, func(ordinal int64) (device.Device, error) {
		opens++
		if ordinal == 1 {
			return nil, failure
		}
		return device.CPUDevice(), nil
	})
	for range 3 {
		_, err := device.Open(device.ID{Type: device.VPI, Ordinal: 0})
		require.NoError(t, err)
	}
	assert.Equal(t, 1, opens, "an open device is kept")
	_, err := device.Open(device.ID{Type: device.VPI, Ordinal: 1})
	assert.ErrorIs(t, err, failure)
	assert.ErrorContains(t, err, "vpi:1")
	open := func(int64) (device.Device, error) { return device.CPUDevice(), nil }
	assert.Panics(t, func() { device.Register(device.VPI, open) }, "a type has one backend")
	assert.Panics(t, func() { device.Register(device.WebGPU, nil) })
}

// The backend of a type lists its devices.
func TestUUIDs(t *testing.T) {
	want := [][16]byte{{1}, {2}}
	failure := errors.New("out of order")
	var fails error
	list := func() ([][16]byte, error) { return want, fails }
	t.Cleanup(func() { device.Forget(device.Hexagon) })
	device.RegisterUUIDs(device.Hexagon, list)
	assert.Panics(t, func() { device.RegisterUUIDs(device.Hexagon, list) }, "a type has one list")
	assert.Panics(t, func() { device.RegisterUUIDs(device.WebGPU, nil) })
	got, err := device.UUIDs(device.Hexagon)
	require.NoError(t, err)
	assert.Equal(t, want, got)
	fails = failure
	_, err = device.UUIDs(device.Hexagon)
	assert.ErrorIs(t, err, failure)
	_, err = device.UUIDs(device.Metal)
	assert.ErrorIs(t, err, device.ErrNotSupported)
}

// A backend for pinned memory opens the device that pins.
func TestOpenersMayOpen(t *testing.T) {
	t.Cleanup(func() { device.Forget(device.VPI); device.Forget(device.WebGPU) })
	device.Register(device.VPI, func(int64) (device.Device, error) { return device.CPUDevice(), nil })
	device.Register(device.WebGPU, func(ordinal int64) (device.Device, error) {
		return device.Open(device.ID{Type: device.VPI, Ordinal: ordinal})
	})
	d, err := device.Open(device.ID{Type: device.WebGPU, Ordinal: 2})
	require.NoError(t, err)
	assert.Equal(t, device.CPUDevice(), d)
}

// probing is a device that implements only Lookup.
type probing func(p device.Ptr) (device.Allocation, error)

func (ask probing) Lookup(p device.Ptr) (device.Allocation, error) { return ask(p) }

// Lookup asks the open devices until one knows the memory, or fails.
func TestLookup(t *testing.T) {
	cpu := device.Allocation{ID: device.CPUDevice().ID()}
	found, err := device.Lookup(1)
	require.NoError(t, err)
	assert.Equal(t, cpu, found, "no device is open that can be asked")

	failure := errors.New("out of order")
	gpu := device.Allocation{ID: device.ID{Type: device.CUDA}, Start: 2, Size: 1}
	asked := 0
	knowsNothing := probing(func(device.Ptr) (device.Allocation, error) { asked++; return cpu, nil })
	removeFirst := device.AddProber(knowsNothing)
	removeSecond := device.AddProber(probing(func(p device.Ptr) (device.Allocation, error) {
		switch p {
		case 2:
			return gpu, nil
		case 3:
			return device.Allocation{}, failure
		}
		return cpu, nil
	}))
	removeThird := device.AddProber(knowsNothing)
	for _, row := range []struct {
		p     device.Ptr
		found device.Allocation
		err   error
		asked int
	}{{1, cpu, nil, 2}, {2, gpu, nil, 1}, {3, device.Allocation{}, failure, 1}} {
		asked = 0
		found, err := device.Lookup(row.p)
		assert.Equal(t, row.found, found)
		assert.Equal(t, row.err, err)
		assert.Equal(t, row.asked, asked)
	}
	removeSecond()
	asked = 0
	found, err = device.Lookup(2)
	require.NoError(t, err)
	assert.Equal(t, cpu, found, "the device that knew it is closed")
	assert.Equal(t, 2, asked, "the others are open")
	removeFirst()
	removeFirst()
	removeThird()
	asked = 0
	_, err = device.Lookup(2)
	require.NoError(t, err)
	assert.Zero(t, asked)
	assert.Panics(t, func() { device.AddProber(nil) })
}

// Devices are opened, asked and closed at the same time.
func TestLookupWhileDevicesAreOpened(t *testing.T) {
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			own := device.Allocation{ID: device.ID{Type: device.CUDA, Ordinal: int64(i)}}
			for range 200 {
				remove := device.AddProber(probing(func(p device.Ptr) (device.Allocation, error) {
					if p == device.Ptr(i) {
						return own, nil
					}
					return device.Allocation{ID: device.CPUDevice().ID()}, nil
				}))
				found, err := device.Lookup(device.Ptr(i))
				assert.NoError(t, err)
				assert.Equal(t, own, found)
				remove()
			}
		})
	}
	wg.Wait()
	found, err := device.Lookup(1)
	require.NoError(t, err)
	assert.Equal(t, device.CPU, found.ID.Type)
}
