package cudaarray_test

import (
	"encoding/json"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/interop/cudaarray"
)

// types are those that have a typestr, with that of an array, and the type of an import.
var types = []struct {
	dt      arrow.DataType
	text    string // five elements
	typestr string
	lists   []int64
	back    arrow.DataType // nil: dt
}{
	{dt: arrow.PrimitiveTypes.Int8, text: `[1,-2,3,4,5]`, typestr: "|i1"},
	{dt: arrow.PrimitiveTypes.Int16, text: `[1,-2,3,4,5]`, typestr: "<i2"},
	{dt: arrow.PrimitiveTypes.Int32, text: `[1,-2,3,4,5]`, typestr: "<i4"},
	{dt: arrow.PrimitiveTypes.Int64, text: `[1,-2,3,4,5]`, typestr: "<i8"},
	{dt: arrow.PrimitiveTypes.Uint8, text: `[1,2,3,4,255]`, typestr: "|u1"},
	{dt: arrow.PrimitiveTypes.Uint16, text: `[1,2,3,4,65535]`, typestr: "<u2"},
	{dt: arrow.PrimitiveTypes.Uint32, text: `[1,2,3,4,5]`, typestr: "<u4"},
	{dt: arrow.PrimitiveTypes.Uint64, text: `[1,2,3,4,5]`, typestr: "<u8"},
	{dt: arrow.FixedWidthTypes.Float16, text: `[1.5,2,3,4,5]`, typestr: "<f2"},
	{dt: arrow.PrimitiveTypes.Float32, text: `[1.5,2,3,4,5]`, typestr: "<f4"},
	{dt: arrow.PrimitiveTypes.Float64, text: `[1.5,2,3,4,5]`, typestr: "<f8"},
	{dt: &arrow.TimestampType{Unit: arrow.Second}, text: `[1,2,3,4,5]`, typestr: "<M8[s]"},
	{dt: &arrow.TimestampType{Unit: arrow.Millisecond}, text: `[1,2,3,4,5]`, typestr: "<M8[ms]"},
	{dt: &arrow.TimestampType{Unit: arrow.Microsecond}, text: `[1,2,3,4,5]`, typestr: "<M8[us]"},
	{dt: &arrow.TimestampType{Unit: arrow.Nanosecond}, text: `[1,2,3,4,5]`, typestr: "<M8[ns]"},
	{dt: &arrow.TimestampType{Unit: arrow.Second, TimeZone: "Asia/Tokyo"}, text: `[1,2,3,4,5]`, typestr: "<M8[s]", back: &arrow.TimestampType{Unit: arrow.Second}},
	{dt: arrow.FixedWidthTypes.Duration_us, text: `[1,2,3,4,5]`, typestr: "<m8[us]"},
	{dt: arrow.FixedWidthTypes.Date64, text: `[86400000,172800000,0,0,86400000]`, typestr: "<M8[ms]", back: &arrow.TimestampType{Unit: arrow.Millisecond}},
	{dt: extensions.NewBool8Type(), text: `[true,false,true,true,false]`, typestr: "|b1", back: arrow.PrimitiveTypes.Uint8},
	{dt: arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Float32), text: `[[1,2],[3,4],[5,6],[7,8],[9,10]]`, typestr: "<f4", lists: []int64{2}},
	{
		dt:      arrow.FixedSizeListOf(1, arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Int16)),
		text:    `[[[1,2,3]],[[4,5,6]],[[7,8,9]],[[10,11,12]],[[13,14,15]]]`,
		typestr: "<i2", lists: []int64{1, 3},
	},
}

// Each type goes out and comes back at the same address, in every kind of memory, whole and in part.
func TestGPUTypes(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{Devices: 2})
	for _, dev := range m.Devices(t) {
		for _, c := range types {
			t.Run(dev.ID().String()+"/"+c.dt.String(), func(t *testing.T) {
				a := ready(t, fromJSON(t, c.dt, c.text), dev)
				part := slice(t, slice(t, a, 1, 5), 1, 3)
				for _, each := range []struct {
					i    cudaarray.Interface
					want string
				}{{exported(t, a), text(t, a)}, {exported(t, part), text(t, part)}} {
					assert.Equal(t, c.typestr, each.i.TypeStr)
					assert.Equal(t, append([]int64{each.i.Shape[0]}, c.lists...), each.i.Shape)
					assert.Equal(t, 3, each.i.Version)
					assert.True(t, each.i.Data.ReadOnly)
					assert.Nil(t, each.i.Strides)
					assert.Nil(t, each.i.Mask)
					assert.Nil(t, each.i.Stream)
					assert.Equal(t, each.want, values(t, dev, each.i, cudaarray.WithType(c.dt)))

					back, err := cudaarray.Import(each.i, cdevice.Lifetime{}, cudaarray.WithDevice(dev))
					require.NoError(t, err)
					want := c.back
					if want == nil {
						want = c.dt
					}
					assert.True(t, arrow.TypeEqual(want, back.DataType()), "%s", back.DataType())
					assert.EqualValues(t, each.i.Shape[0], back.Len())
					again, err := cudaarray.Export(back)
					require.NoError(t, err)
					assert.Equal(t, each.i.Data, again.Data)
					assert.Equal(t, each.i.Shape, again.Shape)
					back.Release()
				}
			})
		}
	}
}

// A list counts from its own offset, and from that of its child.
func TestGPUListsWithinLists(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	dt := arrow.FixedSizeListOf(2, arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Int64))
	a := onGPU(t, m, dt, `[[[1,2,3],[4,5,6]],[[7,8,9],[10,11,12]],[[13,14,15],[16,17,18]]]`)
	whole, part := exported(t, a), exported(t, slice(t, a, 1, 3))
	assert.Equal(t, []int64{3, 2, 3}, whole.Shape)
	assert.Equal(t, []int64{2, 2, 3}, part.Shape)
	assert.Equal(t, whole.Data.Ptr+6*8, part.Data.Ptr)
	child := a.Child(0)
	defer child.Release()
	inner := exported(t, slice(t, child, 3, 5))
	assert.Equal(t, []int64{2, 3}, inner.Shape)
	assert.Equal(t, whole.Data.Ptr+3*3*8, inner.Data.Ptr)
	assert.Equal(t, "[[10 11 12] [13 14 15]]", values(t, m.GPUs[0], inner))
}

// A tensor of an extension type is the array of its storage.
func TestGPUExtensionsAreTheirStorage(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	storage := fromJSON(t, arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int32), `[[1,2],[3,4]]`)
	i := exported(t, ready(t, storage, m.GPUs[0]))
	pairs := extensions.NewOpaqueType(storage.DataType(), "pair", "test")
	a, err := cudaarray.Import(i, cdevice.Lifetime{}, cudaarray.WithDevice(m.GPUs[0]), cudaarray.WithType(pairs))
	require.NoError(t, err)
	defer a.Release()
	assert.True(t, arrow.TypeEqual(pairs, a.DataType()))
	assert.Equal(t, i, exported(t, a))
}

// The address of an empty array is 0, and is not read.
func TestGPUEmptyArrays(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	list := arrow.FixedSizeListOf(4, arrow.PrimitiveTypes.Int64)
	full := onGPU(t, m, list, `[[1,2,3,4],[5,6,7,8]]`)
	for _, i := range []cudaarray.Interface{
		exported(t, onGPU(t, m, arrow.PrimitiveTypes.Int64, `[]`)),
		exported(t, onGPU(t, m, list, `[]`)),
		exported(t, slice(t, full, 1, 1)),
	} {
		assert.Zero(t, i.Data.Ptr)
		assert.Zero(t, i.Shape[0])
		assert.Equal(t, "[]", values(t, gpu, i))
	}
	i := cudaarray.Interface{Shape: []int64{0, 4}, TypeStr: "<i8", Strides: []int64{800, 8}, Data: cudaarray.Data{Ptr: 3}}
	assert.Equal(t, "[]", values(t, gpu, i), "neither strides nor address matter")
}

// The JSON is the dict of Python, with lists for tuples.
func TestJSON(t *testing.T) {
	whole := cudaarray.Interface{
		Shape: []int64{5}, TypeStr: "<M8[us]", Data: cudaarray.Data{Ptr: 1<<63 + 16, ReadOnly: true}, Version: 3, Stream: number(2),
		Mask: &cudaarray.Interface{Shape: []int64{5}, TypeStr: "<t1", Data: cudaarray.Data{Ptr: 8}, Version: 3, Strides: []int64{1}},
	}
	text, err := json.Marshal(whole)
	require.NoError(t, err)
	assert.JSONEq(t, `{"shape": [5], "typestr": "<M8[us]", "data": [9223372036854775824, true], "version": 3, "strides": null, "stream": 2,
		"mask": {"shape": [5], "typestr": "<t1", "data": [8, false], "version": 3, "strides": [1], "stream": null, "mask": null}}`, string(text))
	var back cudaarray.Interface
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, whole, back)

	require.NoError(t, json.Unmarshal([]byte(`{"shape": [2], "typestr": "<i8", "data": [0, false], "version": 2, "descr": [["", "<i8"]]}`), &back))
	for _, bad := range []string{`[1]`, `[1, false, 2]`, `["x", false]`, `[1, 2]`, `[-1, false]`, `5`} {
		assert.Error(t, json.Unmarshal([]byte(`{"data": `+bad+`}`), new(cudaarray.Interface)), bad)
	}
}
