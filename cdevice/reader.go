package cdevice

import (
	"context"
	"fmt"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/schema"
)

// RecordReader is a stream of record batches that have one schema and are on one type of device. It is
// imported ([ImportRecordReader]), or made by a program, for example to export it ([NewRecordReader],
// [WrapRecordReader], [RecordReader.CopyTo]).
//
// Batches are read with All, or with Next as from arrow-go's readers. The stream ends with its last
// batch or its first error. A RecordReader may be used from any goroutine, and reads one batch at a
// time from its source; only Next and RecordBatch must be called by a single goroutine. Code that makes
// the batches must not read from the same reader. [RecordReader.Map] and [RecordReader.Prefetch] change
// which batches it returns, and when.
//
// It is reference counted and starts with one reference. Batches outlive it.
type RecordReader struct {
	r        items.Reader[*RecordBatch]
	schema   *arrow.Schema
	metadata arrow.Metadata
}

// Schema returns the schema of all batches. It is nil if the stream failed before its schema was known:
// there is no batch then, and Err returns the error. [NewFailedRecordReader] and [WrapRecordReader] make
// such readers; imports return the error instead.
func (r *RecordReader) Schema() *arrow.Schema { return r.schema }

// Metadata returns the metadata that the producer of an asynchronous stream passed for the whole
// stream, such as its number of rows, or that of [RecordReader.WithMetadata]. Copies of the stream keep it.
// It is empty for other readers, and not part of the schema.
func (r *RecordReader) Metadata() arrow.Metadata { return r.metadata }

// WithMetadata sets the metadata of the whole stream, which [ExportAsync] passes on, and returns r without
// a new reference. It must not be called while another goroutine uses r.
func (r *RecordReader) WithMetadata(md arrow.Metadata) *RecordReader {
	r.metadata = md
	return r
}

// DeviceType returns the device type of all batches. They may be on several devices of that type.
func (r *RecordReader) DeviceType() device.Type { return r.r.DeviceType }

// All yields the batches that are left, then an error if the stream ended with one. A batch is
// borrowed from the reader until the next iteration; Retain keeps it. After a break, another loop
// continues where the first stopped.
func (r *RecordReader) All() iter.Seq2[*RecordBatch, error] { return r.r.All }

// Next reads the next batch, which RecordBatch then returns, and reports whether there is one. If
// there is none, Err returns the error that ended the stream.
func (r *RecordReader) Next() bool { return r.r.Next() }

// RecordBatch returns the batch that Next read. It is borrowed from the reader until the next call
// of Next; Retain keeps it, and a Release without a Retain panics.
func (r *RecordReader) RecordBatch() *RecordBatch { return r.r.Current }

// Err returns the error that ended the stream, or nil.
func (r *RecordReader) Err() error { return r.r.Err() }

// Map replaces each of the batches that are left by the result of f. It changes r, for all holders of
// a reference to it, and returns r, without a new reference.
//
//	r.Map(f).Prefetch(2) // f is called on the goroutine that reads ahead
//	r.Prefetch(2).Map(f) // f is called on the goroutine that reads a batch from r
//	r.Map(func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) { return b, b.ValidateFull(ctx) })
//
// The batch passed to f is borrowed from the reader until f returns; Retain keeps it. The batch that f
// returns is owned by the reader, which releases it: f may return its argument without a Retain. The result
// must have the types of r's schema and be on r's type of device. A batch that f returns together with
// an error is released.
//
// f is called for one batch at a time, on the goroutine that reads it. The functions of several Maps
// are called in the order of the Maps. f must not read from r or close r: that deadlocks. The stream
// ends with an error if f returns an error (even io.EOF), panics, or returns nil or a batch that does
// not fit. If Map was called after Prefetch, the error of f is returned at once, while the goroutine
// that reads ahead may still be using the source; Close waits for it, and Release does not.
//
// Map does not wait, even for a call of Next that is in progress, whose batch does not go through f. A
// nil f ends the stream with an error. On a reader that has ended, or was closed, Map does nothing.
func (r *RecordReader) Map(f func(*RecordBatch) (*RecordBatch, error)) *RecordReader {
	r.r.Map(f)
	return r
}

// Prefetch makes a goroutine read up to n batches ahead, beyond the batch that is in use. It starts
// with the next batch that is read from r. Prefetch changes r, for all holders of a reference to it,
// and returns r, without a new reference; as [RecordReader.Map], it does not wait. If n is not
// positive, it does nothing; more than 1,048,576 ends the stream with an error.
//
// The goroutine closes the source at the end of the stream, before r reports that end: an imported
// stream is released there. Releasing the reader earlier does not wait for a call of get_next that is
// in progress: the stream is released when that call returns. [RecordReader.Close] waits for both.
//
// Prefetch must not be used for a source that needs a lock, such as Python's, which the caller of Next
// or get_next holds.
func (r *RecordReader) Prefetch(n int) *RecordReader {
	r.r.Prefetch(n)
	return r
}

// Retain adds a reference; see [RecordBatch.Retain].
func (r *RecordReader) Retain() { r.r.Refs.Retain() }

// Release drops a reference. The last one ends the stream, even before its last batch: batches that
// are ready are dropped, and the source is closed, which calls the release callback of an imported
// stream, or the stop function of [NewRecordReaderFunc].
//
// After the reader has reported its end (Next has returned false, or a loop over All has finished),
// the source is no longer in use when the last Release returns. Before that, Release does not wait: a
// goroutine that reads ahead ([RecordReader.Prefetch], [RecordReader.CopyTo]) and a call of Next on
// another goroutine finish their current batch, and then close the source. [RecordReader.Close] waits
// for them.
func (r *RecordReader) Release() { r.r.Release() }

// Close ends the stream for all holders of the reader, drops the batches that are ready, and returns
// when the source is no longer in use: no goroutine reads it, every call of Next or get_next that was
// in progress has returned, and so has the stop function or release callback. A file that the source
// maps into memory may then be unmapped. Close drops no reference: Release is still the caller's.
//
// Close ends the waits of [RecordReader.CopyTo] for copies of its batches. It then waits for copies
// that are enqueued and that the device reads directly from pinned or device memory, and for calls of
// get_next and of Next of a [RecordReader.HostReader], until their batch is exported, viewed or copied.
// Batches that were read stay valid, and so does the batch of RecordBatch, until the next call of Next
// or the last Release.
//
// Afterwards, Next returns false, Err and All return an error that wraps [ErrReleased], and the consumers
// of exported streams get ECANCELED, unless the stream had ended before.
//
// The end of ctx ends the wait with an error that wraps ctx's, but not the closing: another Close waits
// for the rest. Close may be called more than once, on any goroutine, and after Release. The source is
// closed on the goroutine that reads it, or on another one: the caller must not hold a lock that the
// release callback takes, such as Python's. The source, its stop function, and the release functions
// of its batches must not close their own reader: that deadlocks until ctx is done.
//
// If the source in turn uses another reader and releases it with Release, Close waits only until that
// Release returns. To wait for goroutines that read ahead in it, the source must call its Close.
func (r *RecordReader) Close(ctx context.Context) error { return r.r.Close(ctx) }

// Wait returns when the consumers of the streams that r was exported to ([ExportRecordReader]) have released them, and
// returns how the last one ended: nil if r had come to its end, the error that ended r or the export of a batch, or an
// error that wraps context.Canceled if the consumer released the stream before its end. A reader that was not exported is
// an error that wraps arrow.ErrInvalid. [AsyncExport.Wait] is that of an asynchronous stream.
//
// The end of ctx ends the wait with an error that wraps ctx's, but not the stream. Wait may be called on any goroutine, and
// after Release. It must not be called by the code that makes the batches, which the consumer waits for.
func (r *RecordReader) Wait(ctx context.Context) error { return r.r.WaitReleased(ctx) }

func newRecordReader(schema *arrow.Schema, t device.Type, s items.Source[*RecordBatch]) *RecordReader {
	r := &RecordReader{schema: schema}
	r.r.Init("RecordReader", t, s)
	r.r.Fit = func(b *RecordBatch) *RecordBatch { return b.under(schema) }
	r.r.Check = func(b *RecordBatch) error { return checkBatch(b, schema, t) }
	r.r.Count = (*RecordBatch).lentCount
	return r
}

// over makes the reader of a source that is made of r. It has r's metadata and, if r failed before its
// schema was known, r's error.
func (r *RecordReader) over(t device.Type, s items.Source[*RecordBatch]) *RecordReader {
	o := newRecordReader(r.schema, t, s)
	o.metadata = r.metadata
	if r.schema == nil {
		o.r.Fail(r.Err())
	}
	return o
}

// exportSchema returns the error of a reader that failed before its schema was known.
func (r *RecordReader) exportSchema(out *abi.ArrowSchema) error {
	if r.schema == nil {
		return r.Err()
	}
	return schema.ExportSchema(r.schema, out)
}

// ArrayReader is a stream of arrays of one type, such as the chunks of a chunked array. It is the
// [RecordReader] of arrays.
type ArrayReader struct {
	r     items.Reader[*Array]
	field arrow.Field
}

// Field returns the field of all arrays: their type, and the name, nullability and metadata of the
// producer's schema.
func (r *ArrayReader) Field() arrow.Field { return r.field }

// DeviceType returns the device type of all arrays.
func (r *ArrayReader) DeviceType() device.Type { return r.r.DeviceType }

// All yields the arrays that are left; see [RecordReader.All].
func (r *ArrayReader) All() iter.Seq2[*Array, error] { return r.r.All }

// Next reads the next array; see [RecordReader.Next].
func (r *ArrayReader) Next() bool { return r.r.Next() }

// Array returns the array that Next read. It is borrowed from the reader until the next call of
// Next; Retain keeps it.
func (r *ArrayReader) Array() *Array { return r.r.Current }

// Err returns the error that ended the stream, or nil.
func (r *ArrayReader) Err() error { return r.r.Err() }

// Map replaces each array by the result of f; see [RecordReader.Map].
func (r *ArrayReader) Map(f func(*Array) (*Array, error)) *ArrayReader {
	r.r.Map(f)
	return r
}

// Prefetch makes a goroutine read up to n arrays ahead; see [RecordReader.Prefetch].
func (r *ArrayReader) Prefetch(n int) *ArrayReader {
	r.r.Prefetch(n)
	return r
}

// Retain adds a reference; see [RecordBatch.Retain].
func (r *ArrayReader) Retain() { r.r.Refs.Retain() }

// Release drops a reference; see [RecordReader.Release].
func (r *ArrayReader) Release() { r.r.Release() }

// Close ends the stream and returns when its source is no longer in use; see
// [RecordReader.Close].
func (r *ArrayReader) Close(ctx context.Context) error { return r.r.Close(ctx) }

// Wait returns how the exported streams of the reader ended; see [RecordReader.Wait].
func (r *ArrayReader) Wait(ctx context.Context) error { return r.r.WaitReleased(ctx) }

func newArrayReader(field arrow.Field, t device.Type, s items.Source[*Array]) *ArrayReader {
	r := &ArrayReader{field: field}
	r.r.Init("ArrayReader", t, s)
	r.r.Check = func(a *Array) error { return checkArray(a, field.Type, t) }
	r.r.Count = (*Array).lentCount
	return r
}

// checkBatch returns an error if a batch does not fit a stream of this schema and device type.
func checkBatch(b *RecordBatch, schema *arrow.Schema, t device.Type) error {
	switch {
	case b == nil:
		return nothing("batch")
	case !b.refs.Alive():
		return b.released(fielderr.OpRead)
	case !sameSchema(b.schema, schema):
		if err := sameTypes(b.schema, schema); err != nil {
			return err
		}
	}
	return checkType(b.location, t)
}

func checkArray(a *Array, dt arrow.DataType, t device.Type) error {
	switch {
	case a == nil:
		return nothing("array")
	case !a.refs.Alive():
		return a.released(fielderr.OpRead)
	case !arrow.TypeEqual(a.field.Type, dt):
		return fielderr.Invalid(fielderr.OpRead, "Array.type", a.field.Type, fmt.Sprintf("the stream's: %s", fielderr.Type(dt)))
	}
	return checkType(a.location, t)
}
