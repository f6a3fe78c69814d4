package cdevice

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// WrapRecordBatch makes a batch of an arrow-go record batch without copying. dev is the device whose
// memory the columns were built in: [device.CPUDevice] for every ordinary batch, a device of memory
// that the CPU can access (pinned, managed) for columns that were built with that device's allocator. It does not ask the
// driver: memory of the Go heap that is wrapped as a GPU's pinned memory is found by [RecordBatch.ValidateFull] only.
//
// The batch holds a reference to rec until its last Release; rec stays the caller's. Memory of the Go
// heap is pinned for C (runtime.Pinner) once, here, for all exports. If the batch was exported, the
// reference is dropped only after the work that is pending on dev at the last release: a consumer may
// release memory that its stream still reads.
//
// WrapRecordBatch reads only buffer addresses and lengths, and null counts that rec already knows: an
// array whose count is 0 is wrapped without its bitmap. It may be called while the memory is being
// filled.
//
// An error wraps arrow.ErrInvalid or arrow.ErrNotImplemented if a column does not match the schema, or
// is not laid out as its type demands.
func WrapRecordBatch(rec arrow.RecordBatch, dev device.Device) (b *RecordBatch, err error) {
	if argument.IsNil(rec) {
		return nil, fielderr.Absent(fielderr.OpWrap, "RecordBatch", "a record batch of arrow-go")
	}
	if argument.IsNil(dev) {
		return nil, fielderr.Absent(fielderr.OpWrap, "device", "the device that the memory lives on")
	}
	if counting, ok := dev.(hostread.CountingDevice); ok {
		return wrapCountedBatch(rec, counting.Device)
	}
	var w wrapper
	defer func() { w.finish(recover(), &err) }()
	var at tree.Location
	if err := locateOn(&at, dev); err != nil {
		return nil, err
	}
	schema, columns, rows := rec.Schema(), rec.Columns(), rec.NumRows()
	var metadata arrow.Metadata
	if with, ok := rec.(arrow.RecordBatchWithMetadata); ok {
		metadata = with.Metadata()
	}
	if b := wrapColumns(rec, schema, columns, rows, &at); b != nil {
		b.setMetadata(metadata)
		return b, nil
	}
	if err := checkSchema(schema, columns); err != nil {
		return nil, err
	}
	for i, col := range columns {
		if err := w.Measure(col.Data()); err != nil {
			return nil, fielderr.Within(tree.ColumnName(i), err)
		}
		if want, got := schema.Field(i).Type, col.Data().DataType(); !sameType(want, got) {
			return nil, fielderr.Within(tree.ColumnName(i), fielderr.Invalid(fielderr.OpWrap, "data.type", got, want))
		}
	}
	rec.Retain()
	w.start(tree.Own(rec), at)
	nodes := w.Take(len(columns))
	for i, col := range columns {
		if err := w.Node(&nodes[i], col.Data()); err != nil {
			return nil, fielderr.Within(tree.ColumnName(i), err)
		}
		if nodes[i].Length < rows {
			return nil, fielderr.Within(tree.ColumnName(i), fielderr.Invalid(fielderr.OpWrap, "length", nodes[i].Length, fmt.Sprintf("at least %d", rows)))
		}
		if nodes[i].Length > rows {
			nodes[i] = nodes[i].Slice(0, rows)
		}
	}
	b = newRecordBatch(w.mem, at, schema, rows, nodes)
	b.host = rec
	b.setMetadata(metadata)
	return b, nil
}

// WrapArray is [WrapRecordBatch] for one array.
func WrapArray(arr arrow.Array, dev device.Device) (a *Array, err error) {
	if argument.IsNil(arr) {
		return nil, fielderr.Absent(fielderr.OpWrap, "Array", "an array of arrow-go")
	}
	if argument.IsNil(dev) {
		return nil, fielderr.Absent(fielderr.OpWrap, "device", "the device that the memory lives on")
	}
	if counting, ok := dev.(hostread.CountingDevice); ok {
		return wrapCountedArray(arr, counting.Device)
	}
	var w wrapper
	defer func() { w.finish(recover(), &err) }()
	var at tree.Location
	if err := locateOn(&at, dev); err != nil {
		return nil, err
	}
	data := arr.Data()
	if argument.IsNil(data) {
		return nil, wrapReleased("Array", "data")
	}
	dt := arr.DataType()
	if err := w.Measure(data); err != nil {
		return nil, fielderr.Within("array", err)
	}
	arr.Retain()
	w.start(tree.Own(arr), at)
	root := w.Take(1)
	if err := w.Node(&root[0], data); err != nil {
		return nil, fielderr.Within("array", err)
	}
	a = newArray(w.mem, at, arrow.Field{Type: dt, Nullable: true}, root[0])
	a.host = arr
	return a, nil
}

// locateOn sets *at, which is zero, to the location of memory that was built on dev. It returns an error unless arrow-go can
// read memory of dev.
func locateOn(at *tree.Location, dev device.Device) error {
	at.ID, at.Dev = dev.ID(), dev
	if !dev.CPUAccessible() {
		err := at.NotAccessible("CopyToDevice, or CopyTo of a reader, copies there")
		return fielderr.New(fielderr.OpWrap, "device", at.ID, "the device that arrow-go's memory is on, which the CPU can access", err)
	}
	return nil
}

// checkSchema checks what arrow-go's own record batches guarantee, and other implementations may not.
func checkSchema(schema *arrow.Schema, columns []arrow.Array) error {
	if schema == nil {
		return fielderr.Invalid(fielderr.OpWrap, "schema", "nil", "a schema")
	}
	if !schema.IsNativeEndian() {
		return fielderr.New(fielderr.OpWrap, "schema.endianness", schema.Endianness(), "the byte order of this machine", arrow.ErrNotImplemented)
	}
	if len(columns) == 0 && schema.NumFields() > 0 {
		return wrapReleased("RecordBatch", "columns")
	}
	if schema.NumFields() != len(columns) {
		return fielderr.Fields(fielderr.OpWrap, schema.NumFields(), len(columns))
	}
	for i, col := range columns {
		if argument.IsNil(col.Data()) {
			return wrapReleased(tree.ColumnName(i), "data")
		}
		if want, got := schema.Field(i).Type, col.DataType(); !sameType(want, got) {
			return fielderr.Within(tree.ColumnName(i), fielderr.Invalid(fielderr.OpWrap, "type", got, want))
		}
	}
	return nil
}

// wrapReleased returns the error for an object of arrow-go that has lost its parts by its last Release.
func wrapReleased(what, parts string) error {
	return fielderr.New(fielderr.OpWrap, what, nil, nil, fmt.Errorf("%w: it has no %s any more", ErrReleased, parts))
}

// wrapper makes nodes of array data, and releases the memory if that fails.
type wrapper struct {
	cstruct.DataParser
	mem *tree.Owner
}

// start prepares for nodes of data at a location, which mem holds.
func (w *wrapper) start(mem *tree.Owner, at tree.Location) {
	w.mem = mem
	if at.ID.Type != device.CPU { // which has no pending work
		mem.Home = at.Dev
		w.CheckBuffer = checkLocked
	}
	w.Start(mem)
}

// checkLocked returns an error if buffer i is ordinary memory, which an allocator of page-locked memory has fallen back to.
func checkLocked(i int, addr uintptr) error {
	if sizeclass.IsFallback(addr) {
		return fielderr.New(fielderr.OpWrap, fmt.Sprintf("buffers[%d]", i), fielderr.Hex(addr), "page-locked memory, which the allocator had no more of: wrap with device.CPUDevice()", errNotLocked)
	}
	return nil
}

// finish releases the memory if wrapping failed. Record batches, arrays and types may be
// implemented by other packages, so a panic in them becomes an error.
func (w *wrapper) finish(panicked any, err *error) {
	if panicked != nil {
		*err = fielderr.New(fielderr.OpWrap, "arguments", nil, nil, fmt.Errorf("%w: panic: %v", arrow.ErrInvalid, panicked))
	}
	if *err != nil && w.mem != nil {
		w.mem.Release()
	}
}

// wrappedBatch is a batch and all that wrapping it needs, in one allocation.
type wrappedBatch struct {
	RecordBatch
	owner  tree.Owner
	source cstruct.Wrapped
	own    tree.Columns
}

// wrapColumns wraps columns of memory of the CPU. It returns nil for a record batch that is wrong, or
// unusual; WrapRecordBatch then looks closer.
func wrapColumns(rec arrow.RecordBatch, schema *arrow.Schema, columns []arrow.Array, rows int64, at *tree.Location) *RecordBatch {
	if schema == nil || len(columns) == 0 || at.ID.Type != device.CPU || !schema.IsNativeEndian() {
		return nil
	}
	plan, err := layout.PlanOf(schema)
	if err != nil || !plan.Simple {
		return nil
	}
	rec.Retain()
	b := new(wrappedBatch)
	b.owner.Own(rec)
	b.source.Plan, b.source.Mem = plan, &b.owner
	accepted := false
	defer func() {
		if !accepted { // also if code of another implementation panics
			b.owner.Release()
		}
	}()
	if accepted = b.source.Accept(columns, rows, b.owner.Pinner()); !accepted {
		return nil
	}
	b.own.SetSource(len(columns), &b.source)
	b.host = rec
	b.location.ID, b.location.Dev = at.ID, at.Dev
	b.start(&b.owner, schema, rows, &b.own)
	return &b.RecordBatch
}
