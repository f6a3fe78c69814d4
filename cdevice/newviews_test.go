package cdevice_test

import (
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// pointerTo is the address of values of a variable of the package, which do not move.
func pointerTo[T any](values []T) device.Ptr {
	return device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(values))))
}

var (
	ownViews [2]arrow.ViewHeader
	ownText  = []byte("a long string, thirteen and more")
)

// The sizes of a view array are the program's, one for each data buffer: the last of its
// buffers is never taken for them.
func TestViewSizesOfOwnMemory(t *testing.T) {
	checkLeaks(t)
	ownViews[0].SetString(string(ownText))
	ownViews[0].SetIndexOffset(0, 0)
	ownViews[1].SetString("short")
	views, text := pointerTo(ownViews[:]), pointerTo(ownText)
	size := int64(len(ownText))
	view := arrow.BinaryTypes.StringView
	dictionary := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: view}
	list := arrow.ListOf(view)
	forgotten := cdevice.ArrayData{Length: 2, Buffers: []device.Ptr{0, views, text}}
	for _, c := range []struct {
		dt   arrow.DataType
		data cdevice.ArrayData
		want string
	}{
		{view, forgotten, "data.ViewSizes = 0 sizes, want 1, one for each data buffer"},
		{view, cdevice.ArrayData{Length: 2, Buffers: []device.Ptr{0, views, text, text}}, "data.ViewSizes = 0 sizes, want 2, one for each data buffer"},
		{arrow.BinaryTypes.BinaryView, cdevice.ArrayData{Length: 2, Buffers: []device.Ptr{0, views, text, text}, ViewSizes: []int64{1}}, "data.ViewSizes = 1 size, want 2, one for each data buffer"},
		{view, cdevice.ArrayData{Length: 2, Buffers: []device.Ptr{0, views}, ViewSizes: []int64{1}}, "data.ViewSizes = 1 size, want 0, one for each data buffer"},
		{view, cdevice.ArrayData{Length: 2, Buffers: []device.Ptr{0}}, "data.Buffers = 1 buffer, want at least 2 for string_view: validity and views"},
		{view, cdevice.ArrayData{Length: 2}, "data.Buffers = 0 buffers, want at least 2 for string_view: validity and views"},
		{arrow.PrimitiveTypes.Int8, cdevice.ArrayData{Length: 2, Buffers: []device.Ptr{0, views}, ViewSizes: []int64{1}}, "data.ViewSizes = 1 size, want none for int8"},
		{list, cdevice.ArrayData{Length: 0, Buffers: []device.Ptr{0, views}, Children: []cdevice.ArrayData{forgotten}}, "data.children[0].ViewSizes = 0 sizes, want 1, one for each data buffer"},
		{list, cdevice.ArrayData{Length: 0, Buffers: []device.Ptr{0, views}, Children: []cdevice.ArrayData{{Length: 0, Buffers: []device.Ptr{0, views}}, forgotten}}, "data.n_children = 2, want 1 for list<item: string_view, nullable>"},
		{dictionary, cdevice.ArrayData{Length: 0, Buffers: []device.Ptr{0, views}, Dictionary: &forgotten}, "data.dictionary.ViewSizes = 0 sizes, want 1, one for each data buffer"},
		{dictionary, cdevice.ArrayData{Length: 0, Buffers: []device.Ptr{0, views}, Children: []cdevice.ArrayData{forgotten}, Dictionary: &cdevice.ArrayData{Buffers: []device.Ptr{0, views}}}, "data.n_children = 1, want 0 for dictionary<values=string_view, indices=int8, ordered=false>"},
		{view, cdevice.ArrayData{Length: 2, Buffers: []device.Ptr{0, views, text}, ViewSizes: []int64{-1}}, "data.buffers[3][0] = -1"},
	} {
		released := 0
		owner := cdevice.Lifetime{Release: func() { released++ }}
		_, err := cdevice.NewArray(device.CPUDevice(), c.dt, c.data, owner)
		assert.ErrorContains(t, err, "cdevice: new: "+c.want)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
		assert.Equal(t, 1, released, c.want)
		schema := arrow.NewSchema([]arrow.Field{{Name: "v", Type: c.dt}}, nil)
		_, err = cdevice.NewRecordBatch(device.CPUDevice(), schema, 0, []cdevice.ArrayData{c.data}, owner)
		assert.ErrorContains(t, err, "cdevice: new: column[0]")
		assert.Equal(t, 2, released, c.want)
	}

	for _, c := range []struct {
		name string
		data cdevice.ArrayData
		want string
	}{
		{"a data buffer", cdevice.ArrayData{Length: 2, Buffers: []device.Ptr{0, views, text}, ViewSizes: []int64{size}}, `["` + string(ownText) + `" "short"]`},
		{"no data buffers", cdevice.ArrayData{Length: 1, Offset: 1, Buffers: []device.Ptr{0, views}}, `["short"]`},
		{"an empty data buffer", cdevice.ArrayData{Length: 1, Offset: 1, Buffers: []device.Ptr{0, views, 0}, ViewSizes: []int64{0}}, `["short"]`},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := cdevice.NewArray(device.CPUDevice(), view, c.data, cdevice.Lifetime{})
			require.NoError(t, err)
			assert.Equal(t, c.data.Buffers, a.Buffers())
			out, outSchema := garbageArray(), garbageSchema()
			require.NoError(t, cdevice.ExportArray(a, out, outSchema))
			a.Release()
			back := kept(validated(cdevice.ImportArray(out, outSchema)))(t)
			arr, err := back.HostView(background)
			require.NoError(t, err)
			assert.Equal(t, c.want, arr.String())
			arr.Release()
		})
	}
}
