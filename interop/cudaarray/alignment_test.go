package cudaarray_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/interop/cudaarray"
)

// made is an array over memory of a device that the test owns.
func made(t *testing.T, dev device.Device, dt arrow.DataType, data cdevice.ArrayData) *cdevice.Array {
	t.Helper()
	a, err := cdevice.NewArray(dev, dt, data, cdevice.Lifetime{})
	require.NoError(t, err)
	t.Cleanup(a.Release)
	return a
}

// The elements of an interface are aligned to their size, as Import wants them: a kernel that reads others ends the context.
func TestGPUAlignment(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	for _, dev := range m.Devices(t) {
		memory, err := dev.Allocate(background, 256, nil)
		require.NoError(t, err)
		for dt, size := range map[arrow.DataType]device.Ptr{
			arrow.PrimitiveTypes.Uint8: 1, arrow.PrimitiveTypes.Int16: 2, arrow.FixedWidthTypes.Float16: 2, arrow.PrimitiveTypes.Uint32: 4,
			arrow.PrimitiveTypes.Float64: 8, arrow.FixedWidthTypes.Timestamp_us: 8, extensions.NewBool8Type(): 1,
		} {
			for address := memory.Ptr(); address <= memory.Ptr()+8; address++ {
				values := cdevice.ArrayData{Length: 6, Buffers: []device.Ptr{0, address}}
				flat := made(t, dev, dt, values)
				inLists := cdevice.ArrayData{Length: 3, Buffers: []device.Ptr{0}, Children: []cdevice.ArrayData{values}}
				lists := made(t, dev, arrow.FixedSizeListOf(2, dt), inLists)
				for path, a := range map[string]*cdevice.Array{"Array": flat, "Array.Child(0)": lists} {
					for _, a := range []*cdevice.Array{a, slice(t, a, 1, 3)} { // which is as aligned as its array
						i, err := cudaarray.Export(a)
						if address%size == 0 {
							require.NoError(t, err)
							assert.NotZero(t, i.Data.Ptr)
							continue
						}
						assert.ErrorIs(t, err, arrow.ErrInvalid)
						assert.EqualError(t, err, fmt.Sprintf("cudaarray: export: %s.Buffers[1] = %#x, want an address that is a multiple of %d: "+
							"CopyTo makes a copy that is aligned: invalid", path, address, size))
					}
					assert.Zero(t, exported(t, slice(t, a, 1, 1)).Data.Ptr, "no element, no address")
				}
			}
		}
		flush(t, dev)
		require.NoError(t, memory.Free(nil))
	}
}

// cuDF reads a bitmap in words of 4 bytes.
func TestGPUAlignmentOfBitmaps(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	a := onGPU(t, m, numbers, "[null"+strings.Repeat(",1", 99)+"]")
	values := a.Buffers()[1]
	for i := range int64(99) {
		part := slice(t, a, i, 100)
		_, err := cudaarray.Export(part, cudaarray.WithBitmapMask())
		if i%32 == 0 {
			require.NoError(t, err)
			continue
		}
		assert.ErrorIs(t, err, arrow.ErrNotImplemented)
		want := fmt.Sprintf("cudaarray: export: Array.Offset = %d, want a multiple of 32 for WithBitmapMask: cuDF reads words of 4 bytes", i)
		assert.ErrorContains(t, err, want)
	}
	for bitmap := a.Buffers()[0]; bitmap < a.Buffers()[0]+8; bitmap++ {
		data := cdevice.ArrayData{Length: 8, NullCount: -1, Buffers: []device.Ptr{bitmap, values}}
		a := made(t, m.GPUs[0], numbers, data)
		assert.Nil(t, exported(t, slice(t, a, 3, 3), cudaarray.WithBitmapMask()).Mask, "no element, no mask")
		i, err := cudaarray.Export(a, cudaarray.WithBitmapMask())
		if bitmap%4 == 0 {
			require.NoError(t, err)
			assert.Equal(t, bitmap, i.Mask.Data.Ptr)
			continue
		}
		assert.EqualError(t, err, fmt.Sprintf("cudaarray: export: Array.Buffers[0] = %#x, want an address that is a multiple of 4: "+
			"ForCuDF makes a copy that is aligned: invalid", bitmap))
	}
	flush(t, m.GPUs[0])
}
