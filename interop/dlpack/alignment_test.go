package dlpack_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/heap"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
)

// at returns an array of three elements of a type at an address, with the lists around them.
func at(t *testing.T, dev device.Device, dt arrow.DataType, lists []int32, address device.Ptr) *cdevice.Array {
	t.Helper()
	length := int64(3)
	for _, n := range lists {
		length *= int64(n)
	}
	data := cdevice.ArrayData{Length: length, Buffers: []device.Ptr{0, address}}
	for i := len(lists) - 1; i >= 0; i-- {
		length /= int64(lists[i])
		data = cdevice.ArrayData{Length: length, Buffers: []device.Ptr{0}, Children: []cdevice.ArrayData{data}}
	}
	a, err := cdevice.NewArray(dev, listOf(dt, lists...), data, cdevice.Lifetime{})
	require.NoError(t, err)
	t.Cleanup(a.Release)
	return a
}

// The elements of a tensor are aligned to their size, on the host and on a GPU, as Import wants them.
func TestGPUAlignment(t *testing.T) {
	gpu := cudatest.OneGPU(t, cudasim.Options{})
	memory, err := gpu.Allocate(background, 256, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, memory.Free(nil)) })
	host := make([]uint64, 32)
	defer runtime.KeepAlive(host)
	starts := map[device.Device]device.Ptr{
		device.CPUDevice(): device.Ptr(heap.AddressOf(host)),
		gpu:                memory.Ptr(),
	}
	for dt, size := range map[arrow.DataType]device.Ptr{
		arrow.PrimitiveTypes.Int8: 1, arrow.PrimitiveTypes.Uint16: 2, arrow.FixedWidthTypes.Float16: 2, arrow.PrimitiveTypes.Float32: 4,
		arrow.PrimitiveTypes.Int64: 8, arrow.PrimitiveTypes.Float64: 8, extensions.NewBool8Type(): 1,
	} {
		for dev, start := range starts {
			for i, lists := range [][]int32{nil, {2}, {3, 1}} {
				for address := start; address <= start+8; address++ {
					a := at(t, dev, dt, lists, address)
					for _, f := range forms {
						out, err := f.export(a)
						if address%size == 0 {
							require.NoError(t, err)
							assert.Equal(t, uintptr(address), out.Data)
							out.deleted()
							continue
						}
						assert.ErrorIs(t, err, arrow.ErrInvalid)
						path := []string{"Array", "Array.children[0]", "Array.children[0].children[0]"}[i]
						assert.EqualError(t, err, fmt.Sprintf("dlpack: export: %s.Buffers[1] = %#x, want an address that is a multiple of %d: "+
							"CopyTo makes a copy that is aligned: invalid", path, address, size))
					}
				}
			}
		}
	}
}

// A slice is as aligned as its array, wherever it begins.
func TestAlignmentOfSlices(t *testing.T) {
	host := make([]uint64, 32)
	defer runtime.KeepAlive(host)
	start := device.Ptr(heap.AddressOf(host))
	for _, lists := range [][]int32{nil, {3}} {
		aligned := at(t, device.CPUDevice(), arrow.PrimitiveTypes.Int32, lists, start)
		odd := at(t, device.CPUDevice(), arrow.PrimitiveTypes.Int32, lists, start+1)
		for i := range int64(3) {
			for from, want := range map[*cdevice.Array]string{aligned: "", odd: fmt.Sprintf(" = %#x, want an address that is a multiple of 4", start+1)} {
				part, err := from.Slice(i, 3)
				require.NoError(t, err)
				out, err := dlpack.Export(part)
				if want == "" {
					require.NoError(t, err)
					out.Delete()
				} else {
					assert.ErrorContains(t, err, want)
				}
				part.Release()
			}
		}
	}
}

// The copy that the error names is exported.
func TestAlignmentOfCopies(t *testing.T) {
	host := []uint64{0x0000_0200_0000_0100, 0x0300}
	defer runtime.KeepAlive(host)
	a := at(t, device.CPUDevice(), arrow.PrimitiveTypes.Int32, nil, device.Ptr(heap.AddressOf(host))+1)
	_, err := dlpack.Export(a)
	require.ErrorContains(t, err, "CopyTo makes a copy that is aligned")
	copied, err := a.CopyTo(background, device.CPUDevice())
	require.NoError(t, err)
	defer copied.Release()
	out, err := dlpack.Export(copied)
	require.NoError(t, err)
	out.Delete()
	assert.Equal(t, "[1 2 3]", text(t, copied))
}

// The address of a tensor without elements does not count, and that of a device whose buffers are handles is none.
func TestAlignmentOfNoAddress(t *testing.T) {
	empty, err := at(t, device.CPUDevice(), arrow.PrimitiveTypes.Int32, []int32{2}, 0x7001).Slice(1, 1)
	require.NoError(t, err)
	defer empty.Release()
	handles := numberedDevice{device.CPUDevice(), device.ID{Type: device.Vulkan}}
	for want, a := range map[uintptr]*cdevice.Array{0: empty, 0x7001: at(t, handles, arrow.PrimitiveTypes.Int32, nil, 0x7001)} {
		out, err := dlpack.Export(a)
		require.NoError(t, err)
		assert.Equal(t, want, out.Tensor.Data)
		out.Delete()
	}
}
