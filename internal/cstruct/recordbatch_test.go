package cstruct

import (
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/endian"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// numbers is a record batch of so many columns in memory of the Go heap.
func numbers(columns int) *record {
	b := array.NewInt64Builder(memory.NewGoAllocator())
	defer b.Release()
	r := new(record)
	fields := make([]arrow.Field, columns)
	for i := range fields {
		fields[i] = arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int64}
		b.AppendValues([]int64{int64(i), 2, 3}, nil)
		r.columns = append(r.columns, b.NewArray())
	}
	r.schema, r.rows = arrow.NewSchema(fields, nil), 3
	return r
}

// What an export has pinned stays pinned until its release, also if others that use the same objects end before.
func TestExportArrowRecordBatchKeepsItsMemory(t *testing.T) {
	before := bridge.Pinned.Sum()
	for _, columns := range []int{1, 5, 6, 30, 155, 160, 161, 300} {
		recs := []*record{numbers(columns), numbers(columns), numbers(columns)}
		all := make([]abi.ArrowArray, len(recs))
		var addresses []uintptr
		for range 3 {
			for i, rec := range recs {
				assert.True(t, ExportArrowRecordBatch(rec, &all[i]))
			}
			assert.EqualValues(t, before+3, bridge.Pinned.Sum())
			runtime.GC() // which ends the process if it finds a Pinner that pins
			for i := range all {
				for k, child := range abi.Slice[uintptr](all[i].Children, columns) {
					values := abi.Slice[uintptr](abi.At[abi.ArrowArray](child).Buffers, 2)[1]
					assert.EqualValues(t, k, *abi.At[int64](values))
					assert.True(t, cpeer.IsPinned(values))
					addresses = append(addresses, values)
				}
				assert.Equal(t, 1, recs[i].refs)
				bridge.CallArrayRelease(&all[i])
				assert.Zero(t, recs[i].refs)
				for _, addr := range addresses {
					assert.False(t, cpeer.IsPinned(addr), "and not for longer")
				}
				addresses = addresses[:0]
			}
			assert.Equal(t, before, bridge.Pinned.Sum())
			runtime.GC()
		}
	}
}

// unusual is a record batch whose methods panic.
type unusual struct {
	*record
	in string
}

func (u unusual) Columns() []arrow.Array {
	if u.in == "Columns" {
		panic("of another implementation")
	}
	return u.record.Columns()
}

func (u unusual) Retain() {
	if u.in == "Retain" {
		panic("of another implementation")
	}
	u.record.Retain()
}

// What is not exported leaves nothing behind, and the struct as it was.
func TestExportArrowRecordBatchRefuses(t *testing.T) {
	trees, pinned := bridge.Exports(), bridge.Pinned.Sum()
	rec := numbers(2)
	refused := func(name string, rec arrow.RecordBatch) {
		t.Helper()
		var out abi.ArrowArray
		assert.False(t, ExportArrowRecordBatch(rec, &out), name)
		assert.Equal(t, abi.ArrowArray{}, out, name)
		assert.Equal(t, trees, bridge.Exports(), name)
		assert.Equal(t, pinned, bridge.Pinned.Sum(), name)
	}
	refused("no record batch", nil)
	refused("a nil record batch", (*record)(nil))
	refused("no schema", &record{columns: rec.columns, rows: 3})
	foreign := rec.schema.WithEndianness(endian.NonNativeEndian)
	refused("the byte order of another machine", &record{schema: foreign, columns: rec.columns, rows: 3})
	refused("no columns", &record{schema: rec.schema, rows: 3})
	refused("a column less", &record{schema: rec.schema, columns: rec.columns[:1], rows: 3})
	refused("other rows", &record{schema: rec.schema, columns: rec.columns, rows: 2})
	refused("a nil column", &record{schema: rec.schema, columns: []arrow.Array{rec.columns[0], nil}, rows: 3})
	refused("a panic", unusual{rec, "Columns"})
	refused("a panic in Retain", unusual{rec, "Retain"})
	func() {
		defer bridge.LimitBlocks(0)()
		refused("no memory", rec)
	}()
	assert.Zero(t, rec.refs)
}
