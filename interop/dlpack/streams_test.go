package dlpack_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// An error about a stream names the operation, the option and the stream.
func TestErrorsAboutStreams(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	gpu := m.GPUs[0]
	producer, other := cudatest.NewStream(t, gpu), cudatest.NewStream(t, m.GPUs[1])
	defer m.Hold(t, producer)()
	pending := onGPU(t, gpu, producer)
	defer pending.Release()
	host := hostStream(t)
	elsewhere := deviceless(t)
	defer elsewhere.Release()
	for name, c := range map[string]struct {
		a    *cdevice.Array
		opt  dlpack.ExportOption
		want string
		is   error
	}{
		"the CPU's":           {pending, dlpack.WithStream(host), "WithStream = a stream of cpu, want a stream that can wait for an event of cuda:0", arrow.ErrInvalid},
		"no handle":           {pending, dlpack.WithStreamNumber(0x3039), "WithStreamNumber = stream 0x3039 of cuda:0: ", cudaalloc.InvalidHandle},
		"ambiguous":           {pending, dlpack.WithStreamNumber(0), "stream = 0, want -1, 1, 2", arrow.ErrInvalid},
		"of a missing device": {elsewhere, dlpack.WithStreamNumber(1), "WithStreamNumber = 1, want a stream of cuda:7: ", device.ErrNotSupported},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dlpack.Export(c.a, c.opt)
			assert.ErrorContains(t, err, "dlpack: export: "+c.want)
			assert.ErrorIs(t, err, c.is)
		})
	}
	bad, err := gpu.WrapStream(0x3039)
	require.NoError(t, err)
	for want, s := range map[string]device.Stream{
		"WithStream = a stream of cuda:1, want a stream of cuda:0": other,
		"WithStream = stream 0x3039 of cuda:0: ":                   bad,
	} {
		peer := cpeer.NewTensor(cpeer.TensorFields{Data: 0x7000, DeviceType: 2, Bits: 32, Lanes: 1, Shape: []int64{4}})
		_, err := dlpack.Import(dlpack.ManagedTensorVersionedFromPtr(peer.Versioned()), dlpack.WithStream(s), dlpack.WithImportOptions(cdevice.WithDevice(gpu)))
		assert.ErrorContains(t, err, "dlpack: import: "+want)
		assert.Equal(t, 1, peer.Deleted())
		peer.Free()
	}
}

// deviceless is an array on a GPU that the machine does not have.
func deviceless(t *testing.T) *cdevice.Array {
	t.Helper()
	peer := cpeer.NewTensor(cpeer.TensorFields{Data: 0x7000, DeviceType: 2, ID: 7, Bits: 32, Lanes: 1, Shape: []int64{4}})
	t.Cleanup(peer.Free)
	a, err := dlpack.Import(dlpack.ManagedTensorVersionedFromPtr(peer.Versioned()))
	require.NoError(t, err)
	return a
}

func TestStreamOf(t *testing.T) {
	m := cudatest.One(t, cudatest.Schedules()["in order"])
	gpu := m.GPUs[0]
	rocm := rocmDevice{gpu}
	for _, c := range []struct {
		name   string
		dev    device.Device
		number int64
		sync   bool
		want   string
	}{
		{"none", gpu, -1, false, ""},
		{"ambiguous", gpu, 0, false, "stream = 0, want -1, 1, 2 or the handle of a stream: 0 is ambiguous on CUDA"},
		{"legacy", gpu, 1, true, ""},
		{"per thread", gpu, 2, true, ""},
		{"a handle", gpu, 0x7f00, true, ""},
		{"pinned", gpu.Pinned(), 1, true, ""},
		{"managed", gpu.Managed(), 1, true, ""},
		{"negative", gpu, -2, false, "stream = -2"},
		{"default of ROCm", rocm, 0, true, ""},
		{"1 of ROCm", rocm, 1, false, "stream = 1, want -1, 0 or the handle of a stream on ROCm"},
		{"2 of ROCm", rocm, 2, false, "stream = 2"},
		{"a handle of ROCm", rocm, 3, true, ""},
		{"none of the CPU", device.CPUDevice(), -1, false, ""},
		{"the CPU", device.CPUDevice(), 1, false, "stream = 1, want None or -1: memory of cpu has no streams"},
		{"0 of the CPU", device.CPUDevice(), 0, false, "stream = 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, sync, err := dlpack.StreamOf(c.dev, c.number)
			if c.want != "" {
				assert.ErrorIs(t, err, arrow.ErrInvalid)
				assert.ErrorContains(t, err, c.want)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.sync, sync)
			if !sync {
				assert.Nil(t, s)
				return
			}
			assert.Equal(t, uintptr(c.number), s.Handle())
			assert.NoError(t, s.Close())
		})
	}
}

// rocmDevice is a device that declares to be of ROCm.
type rocmDevice struct{ device.Device }

func (rocmDevice) ID() device.ID { return device.ID{Type: device.ROCM} }
