//go:build cgo

package cdata

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
)

// ExportArrowSchema fills *out with a schema: a struct whose children are the fields. Its memory is C's, and
// the consumer releases it.
//
// *out need not be zero. It panics if C cannot express the schema, or an argument is nil.
func ExportArrowSchema(schema *arrow.Schema, out *CArrowSchema) {
	must("ExportArrowSchema", cdevice.ExportSchema(schema, out))
}

// ExportArrowRecordBatch fills *out, and *outSchema unless it is nil, with a record batch: a struct array
// whose children are the columns. It copies nothing.
//
// The exported struct holds the batch until its consumer releases it, on any thread; rb stays the caller's.
// Memory of the Go heap is pinned until then: any allocator will do, and no program has to pin anything.
//
// *out and *outSchema need not be zero; they are written only on success. It panics if C cannot express
// the batch, or rb or out is nil.
//
// Nulls that were not counted are counted, without a change of the array; nothing else reads its data.
func ExportArrowRecordBatch(rb arrow.RecordBatch, out *CArrowArray, outSchema *CArrowSchema) {
	must("ExportArrowRecordBatch", exportRecordBatch(rb, out, outSchema))
}

// countingCPU is the device of all that is exported, so that no null count is unknown.
var countingCPU device.Device = hostread.CountingDevice{Device: device.CPUDevice()}

func exportRecordBatch(rb arrow.RecordBatch, out *CArrowArray, outSchema *CArrowSchema) error {
	if exportOnce(rb, out, outSchema) {
		return nil
	}
	batch, err := cdevice.WrapRecordBatch(rb, countingCPU)
	if err != nil {
		return err
	}
	defer batch.Release()
	return cdevice.ExportRecordBatch(batch, out, outSchema)
}

// exportOnce does what exportRecordBatch does, in less than half the time, for all but unusual batches. It reports
// whether it did.
func exportOnce(rb arrow.RecordBatch, out *CArrowArray, outSchema *CArrowSchema) bool {
	if argument.IsNil(rb) || out == nil {
		return false
	}
	to := (*abi.ArrowArray)(unsafe.Pointer(out))
	if outSchema == nil {
		return cstruct.ExportArrowRecordBatch(rb, to)
	}
	var schema CArrowSchema
	if cdevice.ExportSchema(rb.Schema(), &schema) != nil {
		return false
	}
	if !cstruct.ExportArrowRecordBatch(rb, to) {
		cdevice.ReleaseStruct(&schema)
		return false
	}
	*outSchema = schema
	return true
}

// ExportArrowArray fills *out, and *outSchema unless it is nil, with an array; see [ExportArrowRecordBatch].
// The schema has no name, and is nullable.
func ExportArrowArray(arr arrow.Array, out *CArrowArray, outSchema *CArrowSchema) {
	must("ExportArrowArray", exportArray(arr, out, outSchema))
}

func exportArray(arr arrow.Array, out *CArrowArray, outSchema *CArrowSchema) error {
	wrapped, err := cdevice.WrapArray(arr, countingCPU)
	if err != nil {
		return err
	}
	defer wrapped.Release()
	return cdevice.ExportArray(wrapped, out, outSchema)
}

// ExportRecordReader fills *out with the batches that are left in reader, which are read when the consumer
// asks for them, on its thread.
//
// The stream holds a reference to reader until the consumer releases it; the caller keeps its own, and
// releases it. Only the stream may read from reader. A reader that has failed before its schema is known, and
// one whose memory C cannot express, is a stream with that error.
//
// A reader of array.ReaderFromIter counts as made where it is exported. If that is a callback from C, as in a function of a driver,
// only C on the same thread reads it; elsewhere the stream ends with an error. Made in a callback and exported elsewhere, or the
// other way round, it ends the process, as does a program's own reader that uses iter.Pull and has no method UsesIterPull()
// (golang/go#67499). None of this concerns a reader of [cdevice.NewRecordReader], which takes an iterator of batches and is exported by
// cdevice.ExportRecordReader; [cdevice.WrapRecordReader] has the details.
//
// *out need not be zero. It panics if an argument is nil.
func ExportRecordReader(reader array.RecordReader, out *CArrowArrayStream) {
	must("ExportRecordReader", exportRecordReader(reader, out))
}

func exportRecordReader(reader array.RecordReader, out *CArrowArrayStream) error {
	if argument.IsNil(reader) {
		return fmt.Errorf("reader = nil, want a reader: %w", arrow.ErrInvalid)
	}
	r, err := wrapReader(reader)
	if err != nil {
		r, err = cdevice.NewFailedRecordReader(device.CPU, err)
	}
	if err != nil {
		return err
	}
	defer r.Release()
	return cdevice.ExportRecordReader(r, out)
}

// wrapReader returns an error also if the reader's Schema panics.
func wrapReader(reader array.RecordReader) (r *cdevice.RecordReader, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fielderr.Panic(v)
		}
	}()
	return cdevice.WrapRecordReader(reader, countingCPU)
}

// must panics with the error of a function that returns none.
func must(function string, err error) {
	if err != nil {
		panic(fmt.Errorf("cdata: %s: %w", function, err))
	}
}

// ReleaseCArrowArray calls the release callback of an array that is not imported. It does nothing if the
// struct is nil or released.
func ReleaseCArrowArray(arr *CArrowArray) { cdevice.ReleaseStruct(arr) }

// ReleaseCArrowSchema calls the release callback of a schema that is not imported; see [ReleaseCArrowArray].
func ReleaseCArrowSchema(schema *CArrowSchema) { cdevice.ReleaseStruct(schema) }

// ReleaseCArrowArrayStream calls the release callback of a stream that is not imported; see [ReleaseCArrowArray].
func ReleaseCArrowArrayStream(stream *CArrowArrayStream) { cdevice.ReleaseStruct(stream) }
