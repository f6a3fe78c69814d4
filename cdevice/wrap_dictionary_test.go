package cdevice_test

import (
	"encoding/binary"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// arrow-go makes the values of a dictionary, and checks them, when a program asks for them. Wrapping
// does not wait for that: what comes next copies the bytes up to the last offset.
func TestDictionaryOfTextsThatEndBehindTheirBytes(t *testing.T) {
	ends32 := func(end int32) *memory.Buffer {
		return memory.NewBufferBytes(binary.NativeEndian.AppendUint32(make([]byte, 8), uint32(end)))
	}
	ends64 := func(end int64) *memory.Buffer {
		return memory.NewBufferBytes(binary.NativeEndian.AppendUint64(make([]byte, 16), uint64(end)))
	}
	texts := func(dt arrow.DataType, offsets *memory.Buffer) rawData {
		return rawData{dt: dt, length: 2, buffers: []*memory.Buffer{nil, offsets, zeroBytes(5)}}
	}
	within := func(values rawData) rawData {
		return rawData{dt: arrow.FixedSizeListOf(1, values.dt), length: 2, buffers: []*memory.Buffer{nil}, children: []*array.Data{values.make()}}
	}
	b := arrow.BinaryTypes
	long := texts(b.String, ends32(6))
	long.length, long.offset = 1, 1
	for name, row := range map[string]struct {
		values rawData
		want   string // after "dictionary."; empty for values that are right
	}{
		"utf8":           {texts(b.String, ends32(5)), ""},
		"utf8 beyond":    {texts(b.String, ends32(6)), "buffers[1][2] = 6, want 0 to 5, the size of buffers[2]"},
		"utf8 below":     {texts(b.String, ends32(-1)), "buffers[1][2] = -1, want"},
		"a part of utf8": {long, "buffers[1][2] = 6, want"},
		"large":          {texts(b.LargeBinary, ends64(5)), ""},
		"large beyond":   {texts(b.LargeBinary, ends64(1<<40)), "buffers[1][2] = 1099511627776, want"},
		"in lists":       {within(texts(b.Binary, ends32(5))), ""},
		"beyond, lists":  {within(texts(b.Binary, ends32(6))), "children[0].buffers[1][2] = 6, want"},
		"no bytes":       {rawData{dt: b.String, length: 2, buffers: []*memory.Buffer{nil, ends32(1), nil}}, "buffers[1][2] = 1, want 0 to 0"},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			dt := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: row.values.dt}
			data := rawData{dt: dt, length: 2, buffers: []*memory.Buffer{nil, zeroBytes(8)}, dictionary: row.values.make()}.make()
			arr := array.MakeFromData(data)
			rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "d", Type: dt}}, nil), []arrow.Array{arr}, 2)
			defer rec.Release()
			arr.Release()
			batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
			if row.want == "" {
				require.NoError(t, err)
				defer batch.Release()
				assert.NoError(t, batch.ValidateFull(t.Context()))
			} else {
				assert.ErrorContains(t, err, "column[0].dictionary."+row.want)
				assert.ErrorIs(t, err, arrow.ErrInvalid)
			}
			one, err := cdevice.WrapArray(arr, device.CPUDevice())
			if row.want == "" {
				require.NoError(t, err)
				one.Release()
			} else {
				assert.ErrorContains(t, err, "array.dictionary."+row.want)
			}
		})
	}
}
