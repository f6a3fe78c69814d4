//go:build cgo

package cdevice

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/device"
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

// ReleaseCArrowArrayStream calls the release callback of a stream that was not imported. A
// nil or released stream is left alone.
func ReleaseCArrowArrayStream(stream *cdata.CArrowArrayStream) {
	if s := streamMirror(stream); s != nil && s.Release != 0 {
		bridge.CallPlainStreamRelease(s)
	}
}

// streamMirror sees cdata's C struct through our mirror of the same struct.
func streamMirror(s *cdata.CArrowArrayStream) *abi.ArrowArrayStream {
	return (*abi.ArrowArrayStream)(unsafe.Pointer(s))
}

// ImportPlainRecordReader makes a reader of a plain C stream of record batches, which live
// on the CPU. All of [ImportRecordReader] holds, and its options with it; [WithDevice] of
// another device than the CPU is an error. A column is what the producer says, offsets of
// nested arrays included; a batch with an offset of its own is an error, and comes in by
// [ImportPlainArrayReader].
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

// ImportPlainArrayReader is [ImportPlainRecordReader] for a stream of arrays of any type:
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

// ExportPlainRecordReader fills the plain stream *out with the batches that are left in r,
// each exported as [ExportPlainRecordBatch] does. All else that [ExportRecordReader] says
// holds: what the stream holds, whose the batches are, how errors reach the consumer.
//
// A batch that a plain struct cannot have, because it has an event or because the CPU cannot
// access its memory, ends the stream: get_next returns EINVAL or ENOTSUP. [RecordReader.AsCPU]
// waits for the events. A stream of device memory that no CPU can access is an error that wraps
// device.ErrNotSupported: [RecordReader.CopyTo] with [device.CPUDevice] copies it.
//
// It writes *out only on success, and does not look at what it held: a struct that was not released
// is overwritten and lost.
//
// https://arrow.apache.org/docs/format/CStreamInterface.html
func ExportPlainRecordReader(r *RecordReader, out *cdata.CArrowArrayStream) error {
	if r == nil {
		return fielderr.Absent(fielderr.OpExport, "RecordReader", "a reader")
	}
	return exportPlainStream("RecordReader", &exported[*RecordBatch]{
		reader: &r.r,
		schema: func(s *abi.ArrowSchema) error { return schema.ExportSchema(r.schema, s) },
		array: func(b *RecordBatch, out uintptr) error {
			return ExportPlainRecordBatch(b, ArrayFromPtr(out), nil)
		},
	}, out)
}

// ExportPlainArrayReader is [ExportPlainRecordReader] for a stream of arrays.
//
// It writes *out only on success, and does not look at what it held: a struct that was not released
// is overwritten and lost.
func ExportPlainArrayReader(r *ArrayReader, out *cdata.CArrowArrayStream) error {
	if r == nil {
		return fielderr.Absent(fielderr.OpExport, "ArrayReader", "a reader")
	}
	return exportPlainStream("ArrayReader", &exported[*Array]{
		reader: &r.r,
		schema: func(s *abi.ArrowSchema) error { return schema.Export(r.field, s) },
		array: func(a *Array, out uintptr) error {
			return ExportPlainArray(a, ArrayFromPtr(out), nil)
		},
	}, out)
}

// exportPlainStream gives s a reference to its reader.
func exportPlainStream[T items.Counted](what string, s *exported[T], out *cdata.CArrowArrayStream) error {
	if out == nil {
		return noOutput("ArrowArrayStream")
	}
	if err := checkAccessible(fielderr.OpExport, what, s.reader.DeviceType); err != nil {
		return err
	}
	s.out = plainOut
	if err := s.start(); err != nil {
		return err
	}
	bridge.ExportPlainStream(s, streamMirror(out))
	return nil
}

// checkAccessible returns an error where the CPU can access no memory of the type, on any
// machine. Of other types, backends have a say.
func checkAccessible(op, what string, t device.Type) error {
	if t != device.CUDA && t != device.ROCM {
		return nil
	}
	err := fmt.Errorf("the CPU cannot access memory of %s: %w", t, device.ErrNotSupported)
	return fielderr.New(op, what+".DeviceType", t.String(), "memory that the CPU can access", err)
}
