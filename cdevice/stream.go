//go:build cgo

package cdevice

import (
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/schema"
)

// ImportRecordReader makes a reader of a C stream of record batches, an ArrowDeviceArrayStream or an
// ArrowArrayStream. It calls get_schema, but not
// get_next. Batches are imported as by [ImportRecordBatch], with the same options; they need not be
// released before the reader. The producer's callbacks are called one at a time, on the goroutine
// that reads a batch.
//
// Each batch must be on the type of device that the stream declares. The stream ends when get_next
// gives a released array, even if its other fields are set, or with the first error: a
// [ProducerError] with the producer's code and text, or a [FieldError] about a malformed struct.
// After that, get_next is not called again.
//
// It takes ownership of *stream, even if it returns an error: it is marked released. Only a stream of the other
// interface is left as it is, with an error that says so.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#device-stream-interface
// https://arrow.apache.org/docs/format/CStreamInterface.html
func ImportRecordReader[S StreamStruct](stream *S, opts ...ImportOption) (*RecordReader, error) {
	from, err := move(stream)
	if err != nil {
		return nil, err
	}
	return importRecordReader(from, opts)
}

// ImportArrayReader is [ImportRecordReader] for a stream of arrays of any type.
//
// It takes ownership of *stream, even if it returns an error.
func ImportArrayReader[S StreamStruct](stream *S, opts ...ImportOption) (*ArrayReader, error) {
	from, err := move(stream)
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
// caller keeps its own reference. Each batch goes to one reader of r: two streams of the same r, or a stream and a
// loop over r, share the batches, and neither has all of them. [RecordReader.Wait] returns how the stream ended.
//
// An error, or a panic in the code that makes the batches, reaches the consumer as an errno and the
// text of get_last_error, which is valid until the next call. After an error or the end, get_next
// gives the same again. If r failed before its schema was known, get_schema gives the error too. A callback that
// fails makes the struct that it was to fill a released one, as some consumers read it all the same.
//
// *out is an ArrowDeviceArrayStream, or an ArrowArrayStream. Of the latter, a batch that has an event, or
// whose memory the CPU cannot access, ends the stream: get_next returns EINVAL or ENOTSUP.
// [RecordReader.AsCPU] waits for the events, and [RecordReader.CopyTo] with [device.CPUDevice] copies memory
// that the CPU cannot access.
//
// It writes *out only on success, over its contents: an unreleased stream there leaks.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#device-stream-interface
// https://arrow.apache.org/docs/format/CStreamInterface.html
func ExportRecordReader[S StreamStruct](r *RecordReader, out *S) error {
	if r == nil {
		return fielderr.Absent(fielderr.OpExport, "RecordReader", "a reader")
	}
	return exportStream(&exported[*RecordBatch]{
		reader: &r.r,
		schema: r.exportSchema,
		device: func(b *RecordBatch, out *CArrowDeviceArray) error { return ExportRecordBatch(b, out, nil) },
		plain:  func(b *RecordBatch, out *cdata.CArrowArray) error { return ExportRecordBatch(b, out, nil) },
	}, out)
}

// ExportArrayReader is [ExportRecordReader] for a stream of arrays.
//
// It writes *out only on success, over its contents: an unreleased stream there leaks.
func ExportArrayReader[S StreamStruct](r *ArrayReader, out *S) error {
	if r == nil {
		return fielderr.Absent(fielderr.OpExport, "ArrayReader", "a reader")
	}
	return exportStream(&exported[*Array]{
		reader: &r.r,
		schema: func(s *abi.ArrowSchema) error { return schema.Export(r.field, s) },
		device: func(a *Array, out *CArrowDeviceArray) error { return ExportArray(a, out, nil) },
		plain:  func(a *Array, out *cdata.CArrowArray) error { return ExportArray(a, out, nil) },
	}, out)
}

// exportStream fills *out with the callbacks of s, which takes a reference to its reader.
func exportStream[T items.Counted, S StreamStruct](s *exported[T], out *S) error {
	switch out := any(out).(type) {
	case *CArrowDeviceArrayStream:
		if out == nil {
			return noOutput("ArrowDeviceArrayStream")
		}
		s.out = deviceOut
		if err := s.start(); err != nil {
			return err
		}
		bridge.ExportStream(s, int32(s.reader.DeviceType), deviceStreamMirror(out))
	case *cdata.CArrowArrayStream:
		if out == nil {
			return noOutput("ArrowArrayStream")
		}
		s.out = plainOut
		if err := s.start(); err != nil {
			return err
		}
		bridge.ExportPlainStream(s, streamMirror(out))
	}
	return nil
}
