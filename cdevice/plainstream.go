//go:build cgo

package cdevice

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
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
// each exported as [ExportPlainRecordBatch] does with the same options. All else that
// [ExportRecordReader] says holds: what the stream holds, whose the batches are, how errors
// reach the consumer.
//
// Each get_next waits until its batch may be read. The end of ctx ends such a wait, and the
// stream: that get_next and all after it return ECANCELED or ETIMEDOUT and take no batch from
// r. It does not interrupt the code that makes the batches.
//
// A stream of device memory that no host can read is an error that wraps
// device.ErrNotSupported; of other devices, get_next returns ENOTSUP for a batch that the
// host cannot read.
//
// It writes *out only on success, and does not look at what it held: a struct that was not released
// is overwritten and lost.
//
// https://arrow.apache.org/docs/format/CStreamInterface.html
func ExportPlainRecordReader(ctx context.Context, r *RecordReader, out *cdata.CArrowArrayStream, opts ...ExportOption) error {
	if r == nil {
		return absent(opExport, "RecordReader", "a reader")
	}
	return exportPlainStream(ctx, "RecordReader", &exported[*RecordBatch]{
		reader: &r.r,
		schema: func(s *abi.ArrowSchema) error { return schema.ExportSchema(r.schema, s) },
		array: func(b *RecordBatch, out uintptr) error {
			return ExportPlainRecordBatch(ctx, b, ArrayFromPtr(out), nil, opts...)
		},
	}, out, opts)
}

// ExportPlainArrayReader is [ExportPlainRecordReader] for a stream of arrays.
//
// It writes *out only on success, and does not look at what it held: a struct that was not released
// is overwritten and lost.
func ExportPlainArrayReader(ctx context.Context, r *ArrayReader, out *cdata.CArrowArrayStream, opts ...ExportOption) error {
	if r == nil {
		return absent(opExport, "ArrayReader", "a reader")
	}
	return exportPlainStream(ctx, "ArrayReader", &exported[*Array]{
		reader: &r.r,
		schema: func(s *abi.ArrowSchema) error { return schema.Export(r.field, s) },
		array: func(a *Array, out uintptr) error {
			return ExportPlainArray(ctx, a, ArrayFromPtr(out), nil, opts...)
		},
	}, out, opts)
}

// exportPlainStream gives s a reference to its reader.
func exportPlainStream[T counted](ctx context.Context, what string, s *exported[T], out *cdata.CArrowArrayStream, opts []ExportOption) error {
	if ctx == nil {
		return absent(opExport, "ctx", "a context")
	}
	if out == nil {
		return noOutput("ArrowArrayStream")
	}
	if _, err := plainOptions(opts); err != nil {
		return err
	}
	if t := s.reader.deviceType; neverReadable(t) {
		err := fmt.Errorf("the host cannot read memory of %s: %w", t, device.ErrNotSupported)
		return fieldError(opExport, what+".DeviceType", t.String(), "memory that the host can read", err)
	}
	s.out = plainOut
	s.ready = func() error { return contextError(ctx, "export") }
	if err := s.start(); err != nil {
		return err
	}
	bridge.ExportPlainStream(s, streamMirror(out))
	return nil
}

// neverReadable reports whether the host can read no memory of the type, on any machine. Of
// other types, backends have a say.
func neverReadable(t device.Type) bool { return t == device.CUDA || t == device.ROCM }
