package soak

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/heap"
)

var everyCase = cases.All()

var columnTypes = []arrow.DataType{
	arrow.PrimitiveTypes.Int64,
	arrow.FixedWidthTypes.Boolean,
	arrow.BinaryTypes.String,
	arrow.ListOf(arrow.PrimitiveTypes.Int32),
	&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int16, ValueType: arrow.BinaryTypes.String},
}

// batch is a record batch of random columns, or of one column of any Arrow type; at times a slice. It is released when the round ends.
func (w *worker) batch() arrow.RecordBatch {
	build := w.unusual
	if w.IntN(4) > 0 {
		build = w.columns
	}
	rec := build()
	if w.IntN(3) == 0 && rec.NumRows() > 0 {
		from := w.Int64N(rec.NumRows())
		whole := rec
		rec = whole.NewSlice(from, from+w.Int64N(rec.NumRows()-from+1))
		whole.Release()
	}
	w.later(rec.Release)
	w.did("a batch of %d rows: %v", rec.NumRows(), rec.Schema().Fields())
	return rec
}

// in returns a copy of a batch in page-locked or managed memory.
func (w *worker) in(mem memory.Allocator, rec arrow.RecordBatch) arrow.RecordBatch {
	b := got[*cdevice.RecordBatch](w)(cdevice.WrapRecordBatch(rec, device.CPUDevice()))
	defer b.Release()
	placed := got[arrow.RecordBatch](w)(b.CopyToHost(background, mem))
	w.later(placed.Release)
	eachBuffer(placed, w.HostWrite)
	return placed
}

// size is a number of rows: mostly few.
func (w *worker) size() int {
	switch w.IntN(20) {
	case 0:
		return 20_000
	case 1, 2, 3:
		return w.IntN(4000)
	}
	return w.IntN(300)
}

// unusual is a batch of one column of the types that package cases has.
func (w *worker) unusual() arrow.RecordBatch {
	c := everyCase[w.IntN(len(everyCase))]
	column := got[arrow.Array](w)(c.Array(memory.DefaultAllocator, cases.Variants[w.IntN(len(cases.Variants))]))
	defer column.Release()
	schema := arrow.NewSchema([]arrow.Field{{Name: c.Name, Type: c.Type, Nullable: true}}, nil)
	return array.NewRecordBatch(schema, []arrow.Array{column}, int64(column.Len()))
}

// columns is a batch of one to four columns of random values, unlike those of any other
// round: bytes of other memory do not pass for them.
func (w *worker) columns() arrow.RecordBatch {
	rows := w.size()
	var fields []arrow.Field
	for i := range 1 + w.IntN(4) {
		fields = append(fields, arrow.Field{Name: fmt.Sprint(i), Type: columnTypes[w.IntN(len(columnTypes))], Nullable: true})
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer b.Release()
	for _, column := range b.Fields() {
		nulls := w.IntN(2) == 0
		for range rows {
			w.appendTo(column, nulls)
		}
	}
	return b.NewRecordBatch()
}

func (w *worker) appendTo(b array.Builder, nulls bool) {
	if nulls && w.IntN(4) == 0 {
		b.AppendNull()
		return
	}
	v := w.Uint64()
	switch b := b.(type) {
	case *array.Int64Builder:
		b.Append(int64(v))
	case *array.Int32Builder:
		b.Append(int32(v))
	case *array.BooleanBuilder:
		b.Append(v%2 == 0)
	case *array.StringBuilder:
		b.Append(words[v%16][:v%13])
	case *array.BinaryDictionaryBuilder:
		w.ok(b.AppendString(words[v%16]))
	case *array.ListBuilder:
		b.Append(true)
		for range v % 4 {
			w.appendTo(b.ValueBuilder(), nulls)
		}
	default:
		w.Fatalf("no values for %T", b)
	}
}

var words = func() (list [16]string) {
	for i := range list {
		for len(list[i]) < 32 {
			list[i] += fmt.Sprintf("%c%x", 'a'+i, i*i)
		}
	}
	return list
}()

// numbers returns a batch of columns of 64-bit integers without nulls, which the test's own work
// can copy with only an address and the number of rows.
func (w *worker) numbers(columns, rows int) arrow.RecordBatch {
	var fields []arrow.Field
	for i := range columns {
		fields = append(fields, arrow.Field{Name: fmt.Sprint(i), Type: arrow.PrimitiveTypes.Int64})
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(fields, nil))
	defer b.Release()
	for _, column := range b.Fields() {
		for range rows {
			column.(*array.Int64Builder).Append(int64(w.Uint64()))
		}
	}
	rec := b.NewRecordBatch()
	w.later(rec.Release)
	w.did("%d columns of %d numbers", columns, rows)
	return rec
}

// bytesOf are the bytes of a column that [worker.numbers] made.
func bytesOf(rec arrow.RecordBatch, column int) []byte {
	return arrow.Int64Traits.CastToBytes(rec.Column(column).(*array.Int64).Int64Values())
}

// same compares every value of a batch, which the host reads for it.
func (w *worker) same(want, got arrow.RecordBatch) {
	eachBuffer(got, w.HostRead)
	if !array.RecordEqual(want, got) {
		w.Fatalf("wrong bytes:\n\twant %.600v\n\tgot  %.600v", want, got)
	}
}

// eachBuffer calls HostRead or HostWrite for each buffer: they declare to the simulated driver that the host reads or writes the
// memory now, and ignore memory that is not the driver's.
func eachBuffer(rec arrow.RecordBatch, do func(device.Ptr, int64)) {
	for _, c := range rec.Columns() {
		buffersBelow(c.Data(), do)
	}
}

func buffersBelow(data arrow.ArrayData, do func(device.Ptr, int64)) {
	for _, b := range data.Buffers() {
		if b != nil && b.Len() > 0 {
			do(addressOf(b.Bytes()), int64(b.Len()))
		}
	}
	for _, child := range data.Children() {
		buffersBelow(child, do)
	}
	if data.DataType().ID() == arrow.DICTIONARY {
		buffersBelow(data.Dictionary(), do)
	}
}

func addressOf(b []byte) device.Ptr { return device.Ptr(heap.AddressOf(b)) }
