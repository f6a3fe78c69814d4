package cdevice

import (
	"context"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/items"
)

// RecordReader is a stream of record batches that have one schema and live on one type of
// device: one that was imported ([ImportRecordReader]), or one that a program makes to
// export it ([NewRecordReader], [WrapRecordReader], [RecordReader.CopyTo]).
//
// Batches are taken with All, or with Next as arrow-go's readers have it. The stream ends
// with its last batch or its first error. A RecordReader may be used from any goroutine;
// batches are asked for by one at a time. Next and RecordBatch are one goroutine's. The
// code that makes the batches must not ask the same reader for one. [RecordReader.Map] and
// [RecordReader.Prefetch] change what it gives, and when.
//
// It is reference counted and starts with one reference. Batches outlive it.
type RecordReader struct {
	r        items.Reader[*RecordBatch]
	schema   *arrow.Schema
	metadata arrow.Metadata
}

// Schema returns the schema of all batches.
func (r *RecordReader) Schema() *arrow.Schema { return r.schema }

// Metadata is what the producer of an asynchronous stream said of the whole stream: how many rows it
// has, say. Copies of the stream keep it. It is empty for other readers, and no part of the schema.
func (r *RecordReader) Metadata() arrow.Metadata { return r.metadata }

// DeviceType is the type of the device that all batches live on; they may live on several
// devices of the type.
func (r *RecordReader) DeviceType() device.Type { return r.r.DeviceType }

// All yields the batches that are left, then an error if the stream ended with one. The
// batch borrows from the reader until the next iteration; Retain to keep it. The loop may
// be left and another one begun: it goes on where the first stopped.
func (r *RecordReader) All() iter.Seq2[*RecordBatch, error] { return r.r.All }

// Next takes the next batch, which RecordBatch then returns, and reports whether there is
// one. Where there is none, Err says why.
func (r *RecordReader) Next() bool { return r.r.Next() }

// RecordBatch is the batch that Next took. It borrows from the reader until the next
// Next; Retain to keep it.
func (r *RecordReader) RecordBatch() *RecordBatch { return r.r.Current }

// Err is the error that ended the stream, or nil.
func (r *RecordReader) Err() error { return r.r.Err() }

// Map makes the reader give what f makes of each of the batches that are left. It changes r,
// for all that hold it, and returns r: readers are composed without references to count.
//
//	r.Map(f).Prefetch(2) // f is called on the goroutine that reads ahead
//	r.Prefetch(2).Map(f) // f is called where a batch is asked for
//	r.Map(func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) { return b, b.ValidateFull(ctx) })
//
// The batch that f is given borrows from the reader until f returns; Retain to keep it. The
// Reader takes the batch that f returns. That may be the one that f was given, without a
// Retain: it passes on. It must have the types of r's schema and live on r's type of device.
// Whatever stands beside an error is released.
//
// f is called for one batch at a time, on the goroutine that asks for it. Functions of several
// Maps are called in the order of the Maps. f must not ask r for a batch, nor close r: it would wait
// for itself. An error of f ends the stream, and so does a panic, a batch that does not fit, or
// none; io.EOF is an error like another. Where f is called above a Prefetch, its error is given
// at once: the goroutine that reads ahead may then be using the source still, for which Close
// waits and Release does not.
//
// Map does not wait, not even for a call of Next that is under way, whose batch does not go
// through f. A nil f ends the stream with an error. On a reader that has ended, or was
// closed, Map does nothing.
func (r *RecordReader) Map(f func(*RecordBatch) (*RecordBatch, error)) *RecordReader {
	r.r.Map(f)
	return r
}

// Prefetch makes a goroutine of the reader's own ask for batches before the reader is asked: up
// to n of them are ready beyond the one that is in use. It begins with the next batch that is
// asked for. Prefetch changes r, for all that hold it, and returns r; see [RecordReader.Map],
// of which it has the rules. Where n is not positive, it does nothing.
//
// At the end of the stream, the source is given back on that goroutine, before the end is
// given: an imported stream is released there. Releasing the reader earlier does not wait for a
// call of get_next that is under way: the stream is released when that call returns.
// [RecordReader.Close] waits for both.
//
// It is not for a source that needs a lock which the caller of Next or get_next holds: Python's, say.
func (r *RecordReader) Prefetch(n int) *RecordReader {
	r.r.Prefetch(n)
	return r
}

// Retain adds a reference; see [RecordBatch.Retain].
func (r *RecordReader) Retain() { r.r.Refs.Retain() }

// Release drops a reference. The last one ends the stream, even in the middle: the batches
// that are ready are dropped, and the source is given back, which calls the release callback
// of an imported stream, or the stop function of [NewRecordReaderFunc].
//
// Once the reader has given its end (Next has reported false, or a loop over All has ended
// by itself), nothing of the source is in use any more when the last Release returns. Before
// that, Release does not wait: a goroutine that reads ahead ([RecordReader.Prefetch], CopyTo) and a
// call of Next on another goroutine finish the batch that they are at, and give the source
// back then. [RecordReader.Close] waits for that.
func (r *RecordReader) Release() { r.r.Release() }

// Close ends the stream for all that hold the reader, drops the batches that are ready, and
// returns when the source is no longer in use: no goroutine reads it, a call of Next or of
// get_next that was under way has returned, and so has the stop function or release
// callback. A file that the source reads from memory may then be unmapped. Copies of
// [RecordReader.CopyTo] whose source the device reads later, from page-locked or device
// memory, have read it, and so have copies that CopyTo of r is making of its batches: their
// waits are ended. The same holds for a call of get_next or of [RecordReader.HostReader]'s
// Next, until its batch is exported, viewed or copied. Batches that were taken are not
// affected, nor is the batch that Next took, until the next Next or the last Release.
//
// From then on, Next reports false, and Err, All and the consumers of exported streams get
// an error that wraps [ErrReleased], unless the stream had ended before.
//
// The end of ctx ends the wait with an error that wraps ctx's, and not the closing: another
// Close waits for the rest. Close may be called more than once, on any goroutine, and after
// Release; it drops no reference. The source is given back on the goroutine that is asking
// it, or on one of Close's own: a caller must not hold a lock that the release callback
// takes (Python's, say). The source, the function that it is stopped with, and the release
// functions of its batches must not close their own reader: Close would wait for itself,
// until ctx is done.
//
// Of a reader below that a program's own code or a C release callback gives back with
// Release, Close waits for what that code or callback waits for: Release does not wait for a
// goroutine that reads ahead. Code that must be sure of that calls Close of the reader below.
func (r *RecordReader) Close(ctx context.Context) error { return r.r.Close(ctx) }

func newRecordReader(schema *arrow.Schema, t device.Type, s items.Source[*RecordBatch]) *RecordReader {
	r := &RecordReader{schema: schema}
	r.r.Init("RecordReader", t, s)
	r.r.Fit = func(b *RecordBatch) *RecordBatch { return b.under(schema) }
	r.r.Check = func(b *RecordBatch) error { return checkBatch(b, schema, t) }
	return r
}

// ArrayReader is a stream of arrays of one type: the chunks of a chunked array, say. It is
// to [Array] what [RecordReader] is to [RecordBatch].
type ArrayReader struct {
	r     items.Reader[*Array]
	field arrow.Field
}

// Field is the field of all arrays: their type, and what the producer's schema says besides.
func (r *ArrayReader) Field() arrow.Field { return r.field }

// DeviceType is the type of the device that all arrays live on.
func (r *ArrayReader) DeviceType() device.Type { return r.r.DeviceType }

// All yields the arrays that are left; see [RecordReader.All].
func (r *ArrayReader) All() iter.Seq2[*Array, error] { return r.r.All }

// Next takes the next array; see [RecordReader.Next].
func (r *ArrayReader) Next() bool { return r.r.Next() }

// Array is the array that Next took. It borrows from the reader until the next Next;
// Retain to keep it.
func (r *ArrayReader) Array() *Array { return r.r.Current }

// Err is the error that ended the stream, or nil.
func (r *ArrayReader) Err() error { return r.r.Err() }

// Map makes the reader give what f makes of each array; see [RecordReader.Map].
func (r *ArrayReader) Map(f func(*Array) (*Array, error)) *ArrayReader {
	r.r.Map(f)
	return r
}

// Prefetch makes a goroutine ask for up to n arrays before the reader is asked; see
// [RecordReader.Prefetch].
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

func newArrayReader(field arrow.Field, t device.Type, s items.Source[*Array]) *ArrayReader {
	r := &ArrayReader{field: field}
	r.r.Init("ArrayReader", t, s)
	r.r.Check = func(a *Array) error { return checkArray(a, field.Type, t) }
	return r
}
