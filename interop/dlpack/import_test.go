package dlpack_test

import (
	"math"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
)

// numbers is memory for tensors of the C peer.
func numbers(t *testing.T) uintptr {
	t.Helper()
	values := make([]int32, 64)
	for i := range values {
		values[i] = int32(i)
	}
	var p runtime.Pinner
	p.Pin(&values[0])
	t.Cleanup(p.Unpin)
	return uintptr(unsafe.Pointer(&values[0]))
}

func TestImportFromC(t *testing.T) {
	data := numbers(t)
	int32s := arrow.PrimitiveTypes.Int32
	for _, c := range []struct {
		name   string
		fields cpeer.TensorFields
		dt     arrow.DataType
		want   string
	}{
		{"without strides", cpeer.TensorFields{Shape: []int64{4}}, int32s, "[0 1 2 3]"},
		{"with strides", cpeer.TensorFields{Shape: []int64{4}, Strides: []int64{1}}, int32s, "[0 1 2 3]"},
		{"byte_offset", cpeer.TensorFields{Shape: []int64{2}, ByteOffset: 8}, int32s, "[2 3]"},
		{"2-D", cpeer.TensorFields{Shape: []int64{2, 3}, Strides: []int64{3, 1}, ByteOffset: 4}, listOf(int32s, 3), "[[1 2 3] [4 5 6]]"},
		{"3-D", cpeer.TensorFields{Shape: []int64{2, 1, 2}}, listOf(int32s, 1, 2), "[[[0 1]] [[2 3]]]"},
		{"strides of single elements", cpeer.TensorFields{Shape: []int64{1, 3, 1}, Strides: []int64{-7, 1, 100}}, listOf(int32s, 3, 1), "[[[0] [1] [2]]]"},
		{"a stride of 0 for one element", cpeer.TensorFields{Shape: []int64{1}, Strides: []int64{0}}, int32s, "[0]"},
		{"no dimensions", cpeer.TensorFields{ByteOffset: 12}, int32s, "[3]"},
		{"no dimensions, no shape", cpeer.TensorFields{WithoutShape: true}, int32s, "[0]"},
		{"no elements", cpeer.TensorFields{Shape: []int64{0}, Strides: []int64{5}}, int32s, "[]"},
		{"no rows", cpeer.TensorFields{Shape: []int64{0, 3}, Strides: []int64{5, 5}}, listOf(int32s, 3), "[]"},
		{"read-only", cpeer.TensorFields{Shape: []int64{1}, Flags: dlpack.FlagReadOnly | dlpack.FlagIsCopied}, int32s, "[0]"},
		{"the CPU numbered -1", cpeer.TensorFields{Shape: []int64{1}, ID: -1}, int32s, "[0]"},
		{"no deleter", cpeer.TensorFields{Shape: []int64{1}, NoDeleter: true}, int32s, "[0]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachForm(t, func(t *testing.T, f form) {
				c.fields.Data, c.fields.DeviceType, c.fields.Bits, c.fields.Lanes = data, 1, 32, 1
				if c.want == "[]" {
					c.fields.Data = 0
				}
				peer := newPeer(t, c.fields)
				tensor := dlpack.ManagedTensorVersionedFromPtr(peer.Versioned()).Tensor
				assert.Equal(t, [][]int64{c.fields.Shape, c.fields.Strides}, [][]int64{tensor.Shape(), tensor.Strides()})
				a, err := f.take(f.of(peer))
				require.NoError(t, err)
				assert.True(t, arrow.TypeEqual(c.dt, a.DataType()), a.DataType())
				assert.Equal(t, c.want, text(t, a))
				assert.Equal(t, device.CPUDevice().ID(), a.DeviceID())
				assert.Zero(t, a.NullCount())
				assert.NoError(t, a.ValidateFull(background))
				slice, err := a.Slice(0, a.Len())
				require.NoError(t, err)
				a.Release()
				assert.Zero(t, peer.Deleted(), "the slice has it")
				slice.Release()
				assert.Equal(t, deletions(c.fields), peer.Deleted())
			})
		})
	}
}

func deletions(f cpeer.TensorFields) int {
	if f.NoDeleter {
		return 0
	}
	return 1
}

// Each tensor that is refused is deleted, by an error that names the field.
func TestRefusedImports(t *testing.T) {
	data := numbers(t)
	valid := cpeer.TensorFields{Data: data, DeviceType: 1, Bits: 32, Lanes: 1, Shape: []int64{4}}
	with := func(change func(*cpeer.TensorFields)) cpeer.TensorFields {
		f := valid
		change(&f)
		return f
	}
	shape := func(shape ...int64) cpeer.TensorFields { return with(func(f *cpeer.TensorFields) { f.Shape = shape }) }
	dtype := func(code, bits uint8) cpeer.TensorFields {
		return with(func(f *cpeer.TensorFields) { f.Code, f.Bits = code, bits })
	}
	strided := func(shape, strides []int64) cpeer.TensorFields {
		return with(func(f *cpeer.TensorFields) { f.Shape, f.Strides = shape, strides })
	}
	for _, c := range []struct {
		name   string
		fields cpeer.TensorFields
		is     error
		want   string
	}{
		{"transposed", strided([]int64{2, 3}, []int64{1, 2}), arrow.ErrNotImplemented, "strides[1] = 2, want 1: the elements of an array are contiguous, in C order: copy the tensor first"},
		{"every second row", strided([]int64{2, 3}, []int64{6, 1}), arrow.ErrNotImplemented, "strides[0] = 6, want 3"},
		{"broadcast", strided([]int64{4}, []int64{0}), arrow.ErrNotImplemented, "strides[0] = 0, want 1"},
		{"backwards", strided([]int64{4}, []int64{-1}), arrow.ErrNotImplemented, "strides[0] = -1, want 1"},
		{"lanes", with(func(f *cpeer.TensorFields) { f.Lanes = 4 }), arrow.ErrNotImplemented, "dtype.lanes = 4, want 1"},
		{"no lanes", with(func(f *cpeer.TensorFields) { f.Lanes = 0 }), arrow.ErrNotImplemented, "dtype.lanes = 0, want 1"},
		{"bool", dtype(6, 8), arrow.ErrNotImplemented, "6 (bool of 8 bits), want int or uint of 8 to 64 bits, float of 16 to 64 bits (Arrow's bool is a bit"},
		{"bfloat16", dtype(4, 16), arrow.ErrNotImplemented, "4 (bfloat of 16 bits), want int or uint of 8 to 64 bits, float of 16 to 64 bits (Arrow has no bfloat16: view it as uint16)"},
		{"complex", dtype(5, 64), arrow.ErrNotImplemented, "view them as float with a last dimension of 2"},
		{"float8", dtype(10, 8), arrow.ErrNotImplemented, "10 (code of 8 bits)"},
		{"int4", dtype(0, 4), arrow.ErrNotImplemented, "0 (int of 4 bits)"},
		{"int128", dtype(0, 128), arrow.ErrNotImplemented, "0 (int of 128 bits)"},
		{"float8 by bits", dtype(2, 8), arrow.ErrNotImplemented, "2 (float of 8 bits)"},
		{"opaque", dtype(3, 64), arrow.ErrNotImplemented, "opaque handle"},
		{"dimensions below 0", with(func(f *cpeer.TensorFields) { f.NDim = -1 }), arrow.ErrInvalid, "ndim = -1, want 0 to 64"},
		{"very many dimensions", with(func(f *cpeer.TensorFields) { f.NDim = math.MaxInt32 }), arrow.ErrInvalid, "ndim = 2147483647"},
		{"no shape", with(func(f *cpeer.TensorFields) { f.WithoutShape = true }), arrow.ErrInvalid, "shape = NULL"},
		{"a negative size", shape(2, -3), arrow.ErrInvalid, "shape[1] = -3, want at least 0"},
		{"lists of nothing", shape(3, 0), arrow.ErrNotImplemented, "shape[1] = 0, want at least 1: arrow-go has no lists of 0 elements"},
		{"long lists", shape(1, 1<<31), arrow.ErrNotImplemented, "shape[1] = 2147483648, want at most 2147483647, as fixed_size_list has"},
		{"too many elements", shape(math.MaxInt64), arrow.ErrInvalid, "shape[0] = 9223372036854775807, want a tensor of less than 2^63 bytes"},
		{"2^63 bytes", shape(1 << 61), arrow.ErrInvalid, "shape[0] = 2305843009213693952, want a tensor of less than 2^63 bytes"},
		{"too many rows", shape(1<<31, 1<<30, 1<<30), arrow.ErrInvalid, "less than 2^63 bytes"},
		{"no data", with(func(f *cpeer.TensorFields) { f.Data = 0 }), arrow.ErrInvalid, "data = NULL, want the address of 4 elements"},
		{"misaligned", with(func(f *cpeer.TensorFields) { f.Data++ }), arrow.ErrInvalid, "want an address that is a multiple of 4: copy the tensor first"},
		{"misaligned by byte_offset", with(func(f *cpeer.TensorFields) { f.ByteOffset = 2 }), arrow.ErrInvalid, "dl_tensor.data"},
		{"a long way", with(func(f *cpeer.TensorFields) { f.ByteOffset = math.MaxUint64 }), arrow.ErrInvalid, "byte_offset = 18446744073709551615"},
		{"around the end", with(func(f *cpeer.TensorFields) { f.Data = math.MaxUint64 - 3 }), arrow.ErrInvalid, "want memory within the address space"},
		{"another CPU", with(func(f *cpeer.TensorFields) { f.ID = 5 }), arrow.ErrInvalid, "dl_tensor.device.device_id = 5, want 0 for cpu"},
		{"a GPU below 0", with(func(f *cpeer.TensorFields) { f.DeviceType, f.ID = int32(device.CUDA), -1 }), arrow.ErrInvalid, "dl_tensor.device.device_id = -1, want a device ordinal for cuda"},
		{"no device", with(func(f *cpeer.TensorFields) { f.DeviceType = -3 }), arrow.ErrInvalid, "dl_tensor.device.device_type = -3, want a positive"},
		{"within a handle", with(func(f *cpeer.TensorFields) { f.DeviceType, f.ByteOffset = int32(device.OpenCL), 3 }), arrow.ErrInvalid, "byte_offset = 3, want a multiple of 4"},
	} {
		t.Run(c.name, func(t *testing.T) {
			eachForm(t, func(t *testing.T, f form) {
				peer := newPeer(t, c.fields)
				_, err := f.take(f.of(peer))
				assert.ErrorIs(t, err, c.is)
				assert.ErrorContains(t, err, c.want)
				var field *cdevice.FieldError
				require.ErrorAs(t, err, &field)
				name := map[string]string{"legacy": "DLManagedTensor.dl_tensor.", "versioned": "DLManagedTensorVersioned.dl_tensor."}[f.name]
				assert.Contains(t, field.Field, name)
				assert.Equal(t, 1, peer.Deleted())
			})
		})
	}
}

func TestOtherMajorVersionIsDeleted(t *testing.T) {
	for _, major := range []uint32{2, 77} {
		peer := cpeer.NewTensor(cpeer.TensorFields{Major: major, NDim: 1 << 20, WithoutShape: true, Bits: 1})
		_, err := dlpack.Import(dlpack.ManagedTensorVersionedFromPtr(peer.Versioned()))
		assert.ErrorIs(t, err, arrow.ErrNotImplemented)
		assert.ErrorContains(t, err, "DLManagedTensorVersioned.version.major")
		assert.Equal(t, 1, peer.Deleted())
		peer.Free()
	}
}

// The deleter is called as the options demand, of an import as of a refusal.
func TestDeleterThroughReleaser(t *testing.T) {
	data := numbers(t)
	for name, lanes := range map[string]uint16{"imported": 1, "refused": 2} {
		t.Run(name, func(t *testing.T) {
			eachForm(t, func(t *testing.T, f form) {
				peer := newPeer(t, cpeer.TensorFields{Data: data, DeviceType: 1, Bits: 32, Lanes: lanes, Shape: []int64{1}})
				var later func()
				a, err := f.take(f.of(peer), dlpack.WithImportOptions(cdevice.WithReleaser(func(release func()) { later = release })), nil)
				if err == nil {
					assert.Nil(t, later)
					a.Release()
				}
				require.NotNil(t, later)
				assert.Zero(t, peer.Deleted())
				later()
				later()
				assert.Equal(t, 1, peer.Deleted())
			})
		})
	}
}

// An option of package cdevice that fails does not leave the tensor.
func TestFailingOptionsDelete(t *testing.T) {
	data := numbers(t)
	for name, c := range map[string]struct {
		opt  dlpack.ImportOption
		want string
	}{
		"WithDevice":  {dlpack.WithImportOptions(cdevice.WithDevice(nil)), "WithDevice = nil"},
		"WithDevice ": {dlpack.WithImportOptions(cdevice.WithDevice(numberedDevice{device.CPUDevice(), device.ID{Type: device.CUDA}})), ".dl_tensor.device.device_type = 1, want 2"},
		"WithStream":  {dlpack.WithStream(nil), "import: WithStream = nil, want a stream"},
		"WithStream ": {dlpack.WithStream(foreignStream{}), "dlpack: import: WithStream = a stream of no device, want a stream of cpu"},
	} {
		t.Run(name, func(t *testing.T) {
			eachForm(t, func(t *testing.T, f form) {
				peer := peerOf(t, device.CPU, data, 1)
				_, err := f.take(f.of(peer), c.opt)
				assert.ErrorIs(t, err, arrow.ErrInvalid)
				assert.ErrorContains(t, err, c.want)
				assert.Equal(t, 1, peer.Deleted())
			})
		})
	}
}

// foreignStream is a stream of no device.
type foreignStream struct{ device.Stream }

func (foreignStream) Device() device.Device { return nil }

func TestImportWithoutMemory(t *testing.T) {
	data := numbers(t)
	eachForm(t, func(t *testing.T, f form) {
		for _, lanes := range []uint16{1, 2} {
			peer := cpeer.NewTensor(cpeer.TensorFields{Data: data, DeviceType: 1, Bits: 32, Lanes: lanes, Shape: []int64{1, 2, 3}})
			restore := bridge.LimitBlocks(0)
			_, err := f.take(f.of(peer))
			restore()
			if lanes == 1 {
				assert.ErrorIs(t, err, syscall.ENOMEM)
			}
			assert.Error(t, err)
			assert.Equal(t, 1, peer.Deleted())
			peer.Free()
		}
	})
}

// Tensors of every device, with and without a backend, are imported, sliced and exported.
func TestAllDeviceTypes(t *testing.T) {
	for _, typ := range []device.Type{
		device.CUDA, device.CUDAHost, device.OpenCL, device.Vulkan, device.Metal, device.VPI, device.ROCM, device.ROCMHost,
		device.ExtDev, device.CUDAManaged, device.OneAPI, device.WebGPU, device.Hexagon, 17, 99,
	} {
		t.Run(typ.String(), func(t *testing.T) {
			eachForm(t, func(t *testing.T, f form) {
				const data = 0x7000
				handle := typ == device.OpenCL || typ == device.Vulkan || typ == device.Metal || typ == device.VPI ||
					typ == device.ExtDev || typ >= device.WebGPU
				peer := newPeer(t, cpeer.TensorFields{Data: data, DeviceType: int32(typ), ID: 3, Bits: 32, Lanes: 1, Shape: []int64{4, 2}, ByteOffset: 12})
				a, err := f.take(f.of(peer))
				require.NoError(t, err)
				assert.Equal(t, device.ID{Type: typ, Ordinal: 3}, a.DeviceID())
				slice, err := a.Slice(1, 3)
				require.NoError(t, err)
				a.Release()
				number := int32(3)
				if typ == device.CUDAHost || typ == device.CUDAManaged || typ == device.ROCMHost {
					number = 0 // such memory has no number in DLPack
				}
				for _, g := range forms {
					out, err := g.export(slice)
					require.NoError(t, err)
					assert.Equal(t, dlpack.Device{Type: int32(typ), ID: number}, out.Device)
					assert.Equal(t, []int64{2, 2}, out.Shape())
					if handle {
						assert.EqualValues(t, data, out.Data, "it is not an address")
						assert.EqualValues(t, 12+8, out.ByteOffset)
					} else {
						assert.EqualValues(t, data+12+8, out.Data)
						assert.Zero(t, out.ByteOffset)
					}
					out.deleted()
				}
				slice.Release()
				assert.Equal(t, 1, peer.Deleted())
			})
		})
	}
}

// Many threads import, share and release.
func TestConcurrentOwnership(t *testing.T) {
	data := numbers(t)
	before := cdevice.ReadStats()
	var threads sync.WaitGroup
	for range 8 {
		threads.Go(func() {
			for range 200 {
				for _, f := range forms {
					peer := cpeer.NewTensor(cpeer.TensorFields{Data: data, DeviceType: 1, Bits: 32, Lanes: 1, Shape: []int64{4, 2}})
					a, err := f.take(f.of(peer))
					if !assert.NoError(t, err) {
						return
					}
					first, err := f.export(a)
					assert.NoError(t, err)
					second, err := f.export(a)
					assert.NoError(t, err)
					var users sync.WaitGroup
					users.Go(a.Release)
					users.Go(first.deleted)
					users.Go(func() { assert.NoError(t, cpeer.DeleteOnThread(second.address, second.versioned)) })
					users.Wait()
					assert.Equal(t, 1, peer.Deleted())
					peer.Free()
				}
			}
		})
	}
	threads.Wait()
	assert.Equal(t, before, cdevice.ReadStats())
}
