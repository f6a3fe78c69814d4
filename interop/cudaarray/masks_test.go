package cudaarray_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/interop/cudaarray"
)

// A bitmap goes out and comes back as it is.
func TestGPUBitmapMasks(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const ones = ",1,1,1,1,1,1,1"
	a := onGPU(t, m, numbers, "[1,null,3,4,5,6,7,null"+ones+",1"+ones+",1"+ones+",1,9,null,11]")
	whole, part := exported(t, a, cudaarray.WithBitmapMask()), exported(t, slice(t, a, 32, 35), cudaarray.WithBitmapMask())
	assert.Equal(t, &cudaarray.Interface{
		Shape: []int64{35}, TypeStr: "<t1", Data: cudaarray.Data{Ptr: a.Buffers()[0], ReadOnly: true}, Version: 3,
	}, whole.Mask)
	assert.Equal(t, a.Buffers()[0]+4, part.Mask.Data.Ptr)
	assert.Equal(t, text(t, a), values(t, gpu, whole))
	assert.Equal(t, "[9 (null) 11]", values(t, gpu, part))

	assert.Nil(t, exported(t, onGPU(t, m, numbers, `[1,2]`), cudaarray.WithBitmapMask()).Mask, "without nulls there is none")
	back, err := cudaarray.Import(part, cdevice.Lifetime{}, cudaarray.WithDevice(gpu))
	require.NoError(t, err)
	defer back.Release()
	assert.EqualValues(t, -1, back.NullCount())
	counted, err := back.CountNulls(background)
	require.NoError(t, err)
	assert.EqualValues(t, 1, counted)
}

// The stream of an interface is that of its mask, in both directions.
func TestGPUMasksHaveTheStream(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	s := cudatest.NewStream(t, gpu)
	a := onGPU(t, m, numbers, `[1,null,3]`)
	bitmap := exported(t, a, cudaarray.WithBitmapMask(), cudaarray.WithStream(s))
	assert.Equal(t, numberOf(s), *bitmap.Mask.Stream)

	hold := cudatest.NewStream(t, gpu)
	open := m.Hold(t, hold)
	late := copied(t, fromJSON(t, arrow.PrimitiveTypes.Uint8, `[1,0,1]`), gpu)
	behind, err := late.WithEvent(hold)
	require.NoError(t, err)
	defer behind.Release()
	bytes := exported(t, a, cudaarray.WithMask(behind), cudaarray.WithStream(s))
	assert.Equal(t, numberOf(s), *bytes.Mask.Stream)
	reached, err := gpu.NewEvent()
	require.NoError(t, err)
	require.NoError(t, s.Record(reached))
	staysPending(t, reached)
	bitmap.Stream = nil
	imported, err := cudaarray.Import(bitmap, cdevice.Lifetime{}, cudaarray.WithDevice(gpu))
	require.NoError(t, err)
	pending, err := imported.Ready()
	require.NoError(t, err)
	assert.False(t, pending, "the stream of the mask is waited for")
	open()
	require.NoError(t, reached.Synchronize(background))
	require.NoError(t, reached.Close())
	assert.Equal(t, "[1 (null) 3]", text(t, imported))
	imported.Release()
}

// A mask of bytes is exported beside the array and replaces the bitmap of the array.
func TestGPUMasksOfBytes(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	for _, dt := range []arrow.DataType{arrow.PrimitiveTypes.Uint8, arrow.PrimitiveTypes.Int8} {
		valid := slice(t, onGPU(t, m, dt, `[0,0,1,0,1]`), 2, 5)
		i := exported(t, onGPU(t, m, numbers, `[1,null,3]`), cudaarray.WithMask(valid))
		assert.Equal(t, &cudaarray.Interface{
			Shape: []int64{3}, TypeStr: "|b1", Data: cudaarray.Data{Ptr: valid.Buffers()[1] + 2, ReadOnly: true}, Version: 3,
		}, i.Mask)
		assert.Equal(t, "[1 0 1]", values(t, gpu, *i.Mask))
	}
	lists := onGPU(t, m, arrow.FixedSizeListOf(2, numbers), `[[1,null],[3,4]]`)
	i := exported(t, lists, cudaarray.WithMask(onGPU(t, m, arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Uint8), `[[1,0],[1,1]]`)))
	assert.Equal(t, []int64{2, 2}, i.Mask.Shape)
}

// An unknown number of nulls can be declared to be 0.
func TestGPUDeclaredNullFree(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	part := slice(t, onGPU(t, m, numbers, `[1,null,3,4]`), 2, 4)
	nulls, err := part.CountNulls(background)
	require.NoError(t, err)
	require.Zero(t, nulls)
	assert.Equal(t, "[3 4]", values(t, m.GPUs[0], exported(t, part, cudaarray.WithoutNulls())))
	lists := slice(t, onGPU(t, m, arrow.FixedSizeListOf(2, numbers), `[null,[1,2],[3,null]]`), 1, 2)
	assert.Equal(t, "[[1 2]]", values(t, m.GPUs[0], exported(t, lists, cudaarray.WithoutNulls())))
}

func TestGPUWritable(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	a := onGPU(t, m, numbers, `[1,null]`)
	i := exported(t, a, cudaarray.WithWritable(), cudaarray.WithBitmapMask())
	assert.False(t, i.Data.ReadOnly)
	assert.True(t, i.Mask.Data.ReadOnly)
}
