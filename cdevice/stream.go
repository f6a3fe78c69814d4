package cdevice

import (
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/schema"
)

// DeviceArrayStreamFromPtr returns the struct ArrowDeviceArrayStream at an address. It
// borrows the struct.
func DeviceArrayStreamFromPtr(ptr uintptr) *CArrowDeviceArrayStream {
	return abi.At[CArrowDeviceArrayStream](ptr)
}

// ReleaseCArrowDeviceArrayStream calls the release callback of a stream that was not imported. It
// does nothing if the stream is nil or released.
func ReleaseCArrowDeviceArrayStream(stream *CArrowDeviceArrayStream) {
	if stream != nil && stream.Release != 0 {
		bridge.CallStreamRelease(deviceStreamMirror(stream))
	}
}

// ImportRecordReader makes a reader of a C stream of record batches. It calls get_schema, but not
// get_next. Batches are imported as by [ImportRecordBatch], with the same options; they need not be
// released before the reader. The producer's callbacks are called one at a time, on the goroutine
// that reads a batch.
//
// Each batch must be on the type of device that the stream declares. The stream ends when get_next
// gives a released array, even if its other fields are set, or with the first error: a
// [ProducerError] with the producer's code and text, or a [FieldError] about a malformed struct.
// After that, get_next is not called again.
//
// It takes ownership of *stream, even if it returns an error: it is marked released.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#device-stream-interface
func ImportRecordReader(stream *CArrowDeviceArrayStream, opts ...ImportOption) (*RecordReader, error) {
	from, err := moveDevice(stream)
	if err != nil {
		return nil, err
	}
	return importRecordReader(from, opts)
}

// ImportArrayReader is [ImportRecordReader] for a stream of arrays of any type.
//
// It takes ownership of *stream, even if it returns an error.
func ImportArrayReader(stream *CArrowDeviceArrayStream, opts ...ImportOption) (*ArrayReader, error) {
	from, err := moveDevice(stream)
	if err != nil {
		return nil, err
	}
	return importArrayReader(from, opts)
}

// ExportRecordReader fills *out with the batches that are left in r, each exported as by
// [ExportRecordBatch]. No batch is read from r before the consumer calls get_next. The consumer may
// call from any thread, one call at a time, as the specification requires.
//
// The exported stream holds a reference to r until the consumer releases it; arrays outlive it. The
// caller keeps its own reference; each batch goes either to the stream or to a caller that reads r.
// An error, or a panic in the code that makes the batches, reaches the consumer as an errno and the
// text of get_last_error, which is valid until the next call. After an error or the end, get_next
// gives the same again. If r failed before its schema was known, get_schema gives the error too.
//
// It writes *out only on success, over its contents: an unreleased stream there leaks.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#device-stream-interface
func ExportRecordReader(r *RecordReader, out *CArrowDeviceArrayStream) error {
	if r == nil {
		return fielderr.Absent(fielderr.OpExport, "RecordReader", "a reader")
	}
	return exportStream(&exported[*RecordBatch]{
		reader: &r.r,
		schema: r.exportSchema,
		out:    deviceOut,
		array: func(b *RecordBatch, out uintptr) error {
			return ExportRecordBatch(b, DeviceArrayFromPtr(out), nil)
		},
	}, out)
}

// ExportArrayReader is [ExportRecordReader] for a stream of arrays.
//
// It writes *out only on success, over its contents: an unreleased stream there leaks.
func ExportArrayReader(r *ArrayReader, out *CArrowDeviceArrayStream) error {
	if r == nil {
		return fielderr.Absent(fielderr.OpExport, "ArrayReader", "a reader")
	}
	return exportStream(&exported[*Array]{
		reader: &r.r,
		schema: func(s *abi.ArrowSchema) error { return schema.Export(r.field, s) },
		out:    deviceOut,
		array: func(a *Array, out uintptr) error {
			return ExportArray(a, DeviceArrayFromPtr(out), nil)
		},
	}, out)
}

// exportStream fills *out with the callbacks of s, which takes a reference to its reader.
func exportStream[T items.Counted](s *exported[T], out *CArrowDeviceArrayStream) error {
	if out == nil {
		return noOutput("ArrowDeviceArrayStream")
	}
	if err := s.start(); err != nil {
		return err
	}
	bridge.ExportStream(s, int32(s.reader.DeviceType), deviceStreamMirror(out))
	return nil
}
