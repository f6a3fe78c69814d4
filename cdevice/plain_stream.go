//go:build cgo

package cdevice

import (
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/schema"
)

// ArrayStreamFromPtr returns the struct ArrowArrayStream at an address, as other languages
// pass it: a capsule of __arrow_c_stream__. It borrows the struct.
func ArrayStreamFromPtr(ptr uintptr) *cdata.CArrowArrayStream {
	return abi.At[cdata.CArrowArrayStream](ptr)
}

// ReleaseCArrowArrayStream calls the release callback of a stream that was not imported. It does
// nothing if the stream is nil or released.
func ReleaseCArrowArrayStream(stream *cdata.CArrowArrayStream) {
	if s := streamMirror(stream); s != nil && s.Release != 0 {
		bridge.CallPlainStreamRelease(s)
	}
}

// streamMirror converts a pointer to cdata's C struct to one to our mirror of the same struct.
func streamMirror(s *cdata.CArrowArrayStream) *abi.ArrowArrayStream {
	return (*abi.ArrowArrayStream)(unsafe.Pointer(s))
}

// ImportPlainRecordReader makes a reader of a plain C stream of record batches, which are in memory
// of the CPU. Everything said of [ImportRecordReader] and its options holds; [WithDevice] with a
// device other than the CPU is an error. Columns keep their offsets; a batch with an offset of its
// own is an error, and can be read with [ImportPlainArrayReader].
//
// It takes ownership of *stream, even if it returns an error: it is marked released.
//
// https://arrow.apache.org/docs/format/CStreamInterface.html
func ImportPlainRecordReader(stream *cdata.CArrowArrayStream, opts ...ImportOption) (*RecordReader, error) {
	from, err := movePlain(streamMirror(stream))
	if err != nil {
		return nil, err
	}
	return importRecordReader(from, opts)
}

// ImportPlainArrayReader is [ImportPlainRecordReader] for a stream of arrays of any type, such as
// the chunks of a chunked array.
//
// It takes ownership of *stream, even if it returns an error.
func ImportPlainArrayReader(stream *cdata.CArrowArrayStream, opts ...ImportOption) (*ArrayReader, error) {
	from, err := movePlain(streamMirror(stream))
	if err != nil {
		return nil, err
	}
	return importArrayReader(from, opts)
}

// ExportPlainRecordReader fills the plain stream *out with the batches that are left in r, each
// exported as [ExportPlainRecordBatch] does. Everything else said of [ExportRecordReader] holds:
// the references of the stream, the ownership of the batches, and how errors reach the consumer.
//
// A batch that has an event, or whose memory the CPU cannot access, ends the stream: get_next
// returns EINVAL or ENOTSUP. [RecordReader.AsCPU] waits for the events, and [RecordReader.CopyTo]
// with [device.CPUDevice] copies memory that the CPU cannot access.
//
// It writes *out only on success, over its contents: an unreleased stream there leaks.
//
// https://arrow.apache.org/docs/format/CStreamInterface.html
func ExportPlainRecordReader(r *RecordReader, out *cdata.CArrowArrayStream) error {
	if r == nil {
		return fielderr.Absent(fielderr.OpExport, "RecordReader", "a reader")
	}
	return exportPlainStream(&exported[*RecordBatch]{
		reader: &r.r,
		schema: r.exportSchema,
		array: func(b *RecordBatch, out uintptr) error {
			return ExportPlainRecordBatch(b, ArrayFromPtr(out), nil)
		},
	}, out)
}

// ExportPlainArrayReader is [ExportPlainRecordReader] for a stream of arrays.
//
// It writes *out only on success, over its contents: an unreleased stream there leaks.
func ExportPlainArrayReader(r *ArrayReader, out *cdata.CArrowArrayStream) error {
	if r == nil {
		return fielderr.Absent(fielderr.OpExport, "ArrayReader", "a reader")
	}
	return exportPlainStream(&exported[*Array]{
		reader: &r.r,
		schema: func(s *abi.ArrowSchema) error { return schema.Export(r.field, s) },
		array: func(a *Array, out uintptr) error {
			return ExportPlainArray(a, ArrayFromPtr(out), nil)
		},
	}, out)
}

// exportPlainStream gives s a reference to its reader.
func exportPlainStream[T items.Counted](s *exported[T], out *cdata.CArrowArrayStream) error {
	if out == nil {
		return noOutput("ArrowArrayStream")
	}
	s.out = plainOut
	if err := s.start(); err != nil {
		return err
	}
	bridge.ExportPlainStream(s, streamMirror(out))
	return nil
}
