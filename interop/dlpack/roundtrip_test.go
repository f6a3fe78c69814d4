package dlpack_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
)

var background = context.Background()

// fromJSON returns an array on the CPU. The test releases it.
func fromJSON(t *testing.T, dt arrow.DataType, values string) *cdevice.Array {
	t.Helper()
	arr, _, err := array.FromJSON(memory.DefaultAllocator, dt, strings.NewReader(values))
	require.NoError(t, err)
	defer arr.Release()
	return wrapped(t, arr)
}

func wrapped(t *testing.T, arr arrow.Array) *cdevice.Array {
	t.Helper()
	a, err := cdevice.WrapArray(arr, device.CPUDevice())
	require.NoError(t, err)
	t.Cleanup(a.Release)
	return a
}

// text returns the elements of an array as arrow-go prints them.
func text(t *testing.T, a *cdevice.Array) string {
	t.Helper()
	host, err := a.HostView(background)
	require.NoError(t, err)
	defer host.Release()
	return fmt.Sprint(host)
}

// form is one of the two forms of tensors.
type form struct {
	name   string
	export func(*cdevice.Array, ...dlpack.ExportOption) (tensor, error)
	take   func(address uintptr, opts ...dlpack.ImportOption) (*cdevice.Array, error)
}

// tensor is a tensor of either form.
type tensor struct {
	*dlpack.Tensor
	address   uintptr
	versioned bool
	deleted   func()
}

var forms = []form{
	{"legacy", func(a *cdevice.Array, opts ...dlpack.ExportOption) (tensor, error) {
		t, err := dlpack.ExportLegacy(a, opts...)
		if err != nil {
			return tensor{}, err
		}
		return tensor{&t.Tensor, uintptr(unsafe.Pointer(t)), false, t.Delete}, nil
	}, func(address uintptr, opts ...dlpack.ImportOption) (*cdevice.Array, error) {
		return dlpack.ImportLegacy(dlpack.ManagedTensorFromPtr(address), opts...)
	}},
	{"versioned", func(a *cdevice.Array, opts ...dlpack.ExportOption) (tensor, error) {
		t, err := dlpack.Export(a, opts...)
		if err != nil {
			return tensor{}, err
		}
		return tensor{&t.Tensor, uintptr(unsafe.Pointer(t)), true, t.Delete}, nil
	}, func(address uintptr, opts ...dlpack.ImportOption) (*cdevice.Array, error) {
		return dlpack.Import(dlpack.ManagedTensorVersionedFromPtr(address), opts...)
	}},
}

// peerOf is a tensor of int32 of a C producer.
func peerOf(t *testing.T, typ device.Type, data uintptr, shape ...int64) cpeer.Tensor {
	t.Helper()
	return newPeer(t, cpeer.TensorFields{Data: data, DeviceType: int32(typ), Bits: 32, Lanes: 1, Shape: shape})
}

func newPeer(t *testing.T, fields cpeer.TensorFields) cpeer.Tensor {
	t.Helper()
	peer := cpeer.NewTensor(fields)
	t.Cleanup(peer.Free)
	return peer
}

// of returns the address of the tensor in this form.
func (f form) of(peer cpeer.Tensor) uintptr {
	if f.name == "versioned" {
		return peer.Versioned()
	}
	return peer.Legacy()
}

// eachForm runs a test for both forms.
func eachForm(t *testing.T, test func(*testing.T, form)) {
	for _, f := range forms {
		t.Run(f.name, func(t *testing.T) { test(t, f) })
	}
}

func listOf(dt arrow.DataType, sizes ...int32) arrow.DataType {
	for _, size := range slices.Backward(sizes) {
		dt = arrow.FixedSizeListOf(size, dt)
	}
	return dt
}

// Every type of numbers, in every shape: the tensor has the memory of the array, and the import of
// it too.
func TestRoundTrip(t *testing.T) {
	numbers := map[arrow.DataType]dlpack.DataType{
		arrow.PrimitiveTypes.Int8:     {Code: dlpack.Int, Bits: 8, Lanes: 1},
		arrow.PrimitiveTypes.Int16:    {Code: dlpack.Int, Bits: 16, Lanes: 1},
		arrow.PrimitiveTypes.Int32:    {Code: dlpack.Int, Bits: 32, Lanes: 1},
		arrow.PrimitiveTypes.Int64:    {Code: dlpack.Int, Bits: 64, Lanes: 1},
		arrow.PrimitiveTypes.Uint8:    {Code: dlpack.UInt, Bits: 8, Lanes: 1},
		arrow.PrimitiveTypes.Uint16:   {Code: dlpack.UInt, Bits: 16, Lanes: 1},
		arrow.PrimitiveTypes.Uint32:   {Code: dlpack.UInt, Bits: 32, Lanes: 1},
		arrow.PrimitiveTypes.Uint64:   {Code: dlpack.UInt, Bits: 64, Lanes: 1},
		arrow.FixedWidthTypes.Float16: {Code: dlpack.Float, Bits: 16, Lanes: 1},
		arrow.PrimitiveTypes.Float32:  {Code: dlpack.Float, Bits: 32, Lanes: 1},
		arrow.PrimitiveTypes.Float64:  {Code: dlpack.Float, Bits: 64, Lanes: 1},
	}
	shapes := []struct {
		name           string
		inner          []int32
		json           string
		i, j           int64 // slice
		shape, strides []int64
		skip           int64 // elements before the first
	}{
		{"1-D", nil, "[1,2,3,4]", 0, 4, []int64{4}, []int64{1}, 0},
		{"1-D sliced", nil, "[1,2,3,4]", 1, 3, []int64{2}, []int64{1}, 1},
		{"1-D empty", nil, "[]", 0, 0, []int64{0}, []int64{1}, -1},
		{"1-D sliced to nothing", nil, "[1,2,3,4]", 2, 2, []int64{0}, []int64{1}, -1},
		{"2-D", []int32{2}, "[[1,2],[3,4],[5,6]]", 0, 3, []int64{3, 2}, []int64{2, 1}, 0},
		{"2-D sliced", []int32{2}, "[[1,2],[3,4],[5,6]]", 1, 3, []int64{2, 2}, []int64{2, 1}, 2},
		{"2-D empty", []int32{2}, "[]", 0, 0, []int64{0, 2}, []int64{2, 1}, -1},
		{"3-D sliced", []int32{2, 3}, "[[[1,2,3],[4,5,6]],[[7,8,9],[10,11,12]]]", 1, 2, []int64{1, 2, 3}, []int64{6, 3, 1}, 6},
		{"4-D", []int32{1, 2, 1}, "[[[[1],[2]]],[[[3],[4]]]]", 0, 2, []int64{2, 1, 2, 1}, []int64{2, 2, 1, 1}, 0},
	}
	for element, dtype := range numbers {
		for _, c := range shapes {
			t.Run(fmt.Sprint(element, " ", c.name), func(t *testing.T) {
				eachForm(t, func(t *testing.T, f form) {
					whole := fromJSON(t, listOf(element, c.inner...), c.json)
					a, err := whole.Slice(c.i, c.j)
					require.NoError(t, err)
					defer a.Release()
					want := text(t, a)

					out, err := f.export(a)
					require.NoError(t, err)
					assert.Equal(t, dtype, out.DType)
					assert.Equal(t, dlpack.Device{Type: 1}, out.Device)
					assert.Equal(t, c.shape, out.Shape())
					assert.Equal(t, c.strides, out.Strides())
					assert.Zero(t, out.ByteOffset)
					data := uintptr(0)
					if c.skip >= 0 {
						data = uintptr(leaf(t, whole)) + uintptr(c.skip)*uintptr(dtype.Bits/8)
					}
					assert.Equal(t, data, out.Data)

					back, err := f.take(out.address)
					require.NoError(t, err)
					defer back.Release()
					assert.Equal(t, want, text(t, back))
					assert.True(t, arrow.TypeEqual(listOf(element, c.inner...), back.DataType()), back.DataType())
					assert.Equal(t, device.CPUDevice().ID(), back.DeviceID())
					if data != 0 {
						assert.Equal(t, device.Ptr(data), leaf(t, back), "nothing is copied")
					}
					assert.NoError(t, back.ValidateFull(background))
				})
			})
		}
	}
}

// leaf returns the address of the elements.
func leaf(t *testing.T, a *cdevice.Array) device.Ptr {
	t.Helper()
	if a.NumChildren() == 0 {
		return a.Buffers()[1]
	}
	child := a.Child(0)
	defer child.Release()
	return leaf(t, child)
}
