package cdevice

import (
	"context"
	"fmt"
	"io"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// NewRecordReader makes a reader of an iterator over batches that have the schema and are on devices
// of type t: a function that yields them, or All of another reader. The reader borrows each batch until its
// yield returns, and retains those that it keeps: the iterator releases the batches that it made. The stream ends with the iterator, or
// with the first error that it yields (io.EOF without a batch is the end, as for [NewRecordReaderFunc]).
//
// The iterator runs on a goroutine of its own, and only while a batch is being read. A release before
// the end makes its yield return false, and waits until the iterator has returned. A panic in it is an
// error of the stream. For a consumer in C, a batch costs two switches between threads, some ten
// microseconds; with [NewRecordReaderFunc] it costs none.
//
// The result is owned by the caller.
func NewRecordReader(schema *arrow.Schema, t device.Type, batches iter.Seq2[*RecordBatch, error]) (*RecordReader, error) {
	if err := checkNew(schema != nil, "batches", batches != nil, t); err != nil {
		return nil, err
	}
	return newRecordReader(schema, t, &items.Sequence[*RecordBatch]{Seq: batches, Check: func(b *RecordBatch) error {
		return checkBatch(b, schema, t)
	}}), nil
}

// NewRecordReaderFunc makes a reader of a function that returns the next batch, owned by the reader,
// and io.EOF at the end. next is called on the goroutine, or in the callback from C, that reads a
// batch, one call at a time, and not again after an error. stop, unless it is nil, is called once,
// when the reader is released. Neither may use iter.Pull: [NewRecordReader] takes iterators. Nor
// may they call runtime.Goexit, as FailNow of package testing does: in a callback from C, Go ends the process then. The
// batches are as for [NewRecordReader].
//
// next gets a context that ends with ctx, with the last Release and with Close, even while next is running
// on another goroutine. A next that waits must return soon after that; its error is the stream's. If ctx has
// ended, next is still called, so that the error is its own.
//
// An error that wraps io.EOF does not end the stream as io.EOF does: it is the error of a source that
// was cut off ("read batch 7: EOF"), and the batches before it must not pass for all. So it is with
// every source. The reader's error has the same text, and wraps io.ErrUnexpectedEOF in place of
// io.EOF: functions of arrow-go, such as arrio.Copy, take any error that wraps io.EOF for the end.
//
// A batch that next returns together with an error is released. Beside io.EOF it is an error that wraps
// arrow.ErrInvalid: the last batch is returned without an error, and io.EOF by the call after that.
//
// The result is owned by the caller.
func NewRecordReaderFunc(ctx context.Context, schema *arrow.Schema, t device.Type, next func(context.Context) (*RecordBatch, error), stop func()) (*RecordReader, error) {
	if err := fielderr.CheckContext(fielderr.OpNew, ctx); err != nil {
		return nil, err
	}
	if err := checkNew(schema != nil, "next", next != nil, t); err != nil {
		return nil, err
	}
	f := &contextFunction{}
	f.ctx, f.cancel = context.WithCancel(ctx)
	f.Ask = func() (*RecordBatch, error) { return next(f.ctx) }
	f.Check = func(b *RecordBatch) error { return checkBatch(b, schema, t) }
	f.Stop = stop
	return newRecordReader(schema, t, f), nil
}

// contextFunction is a source that calls a function that a context interrupts.
type contextFunction struct {
	items.Function[*RecordBatch]
	ctx    context.Context
	cancel func()
}

func (f *contextFunction) Interrupt() { f.cancel() }

// Close ends the context even if nothing interrupted the function.
func (f *contextFunction) Close(done func()) {
	f.cancel()
	f.Function.Close(done)
}

// NewFailedRecordReader makes a reader of a source that failed with err before it had a schema, such as
// a query of a table that does not exist. It has no schema and no batch, and Err returns err at once.
// Exported, it tells the consumer its errno and text: get_schema returns them, or on_error of an
// asynchronous handler is called without on_schema before it.
//
// The result is owned by the caller.
func NewFailedRecordReader(t device.Type, err error) (*RecordReader, error) {
	if argument.IsNil(err) {
		return nil, fielderr.Absent(fielderr.OpNew, "err", "the error of the source")
	}
	if err := checkNew(true, "", true, t); err != nil {
		return nil, err
	}
	return failedReader(t, err), nil
}

func failedReader(t device.Type, err error) *RecordReader {
	r := newRecordReader(nil, t, new(items.Function[*RecordBatch])) // which is not asked
	r.r.Fail(err)
	return r
}

// NewArrayReader is [NewRecordReader] for arrays of the field's type.
func NewArrayReader(field arrow.Field, t device.Type, arrays iter.Seq2[*Array, error]) (*ArrayReader, error) {
	if err := checkNew(!argument.IsNil(field.Type), "arrays", arrays != nil, t); err != nil {
		return nil, err
	}
	return newArrayReader(field, t, &items.Sequence[*Array]{Seq: arrays, Check: func(a *Array) error {
		return checkArray(a, field.Type, t)
	}}), nil
}

// ConcatRecordReaders makes a reader of the batches of several readers, one reader after the other: those of files that
// the iterator opens when their turn comes. Their schemas must have the types of the schema, and their device type must be t.
//
// Each reader is borrowed from the iterator until its yield returns, when all of its batches were read; then the iterator
// releases it:
//
//	readers := func(yield func(*cdevice.RecordReader, error) bool) {
//		for _, path := range os.Args[1:] {
//			r, err := open(path)
//			more := yield(r, err)
//			if err == nil {
//				r.Release()
//			}
//			if !more {
//				return
//			}
//		}
//	}
//
// The stream ends with the iterator, with the first error that it yields, or with the first error of a reader, whose
// number the error has. The iterator runs as that of [NewRecordReader] does.
//
// The result is owned by the caller.
func ConcatRecordReaders(schema *arrow.Schema, t device.Type, readers iter.Seq2[*RecordReader, error]) (*RecordReader, error) {
	if err := checkNew(schema != nil, "readers", readers != nil, t); err != nil {
		return nil, err
	}
	return NewRecordReader(schema, t, func(yield func(*RecordBatch, error) bool) {
		i := 0
		for r, err := range readers {
			if err = items.NoItemAtEnd(r, err); err == nil {
				err = checkPart(r, schema, t, i)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			for b, err := range r.All() {
				if err != nil {
					err = fmt.Errorf("cdevice: readers[%d]: %w", i, err)
				}
				if !yield(b, err) {
					return
				}
			}
			i++
		}
	})
}

// checkPart checks reader i of a reader of several. One that failed before it had a schema has its error instead of batches.
func checkPart(r *RecordReader, schema *arrow.Schema, t device.Type, i int) error {
	name := fmt.Sprintf("readers[%d]", i)
	switch {
	case r == nil:
		return fielderr.Absent(fielderr.OpRead, name, "a reader or an error")
	case r.schema == nil:
		return nil
	case r.DeviceType() != t:
		return fielderr.Within(name, otherType(r.DeviceType(), t))
	}
	return fielderr.Within(name, sameTypes(r.schema, schema))
}

// nothing is the error of a program's function that returned a nil item without an error.
func nothing(what string) error {
	return fmt.Errorf("cdevice: neither a %s nor an error: %w", what, arrow.ErrInvalid)
}

func checkType(at tree.Location, t device.Type) error {
	if at.ID.Type != t {
		return otherType(at.ID.Type, t)
	}
	return nil
}

func otherType(got, want device.Type) error {
	return fielderr.Invalid(fielderr.OpRead, "device_type", got, fmt.Sprintf("%s, the device type of the stream; MapTo and CopyTo copy batches", want))
}

// checkNew names the argument that is missing.
func checkNew(schema bool, name string, source bool, t device.Type) error {
	switch {
	case !schema:
		return fielderr.Invalid(fielderr.OpNew, "schema", "nil", "a schema; NewFailedRecordReader makes a reader without one")
	case t <= 0:
		return fielderr.Invalid(fielderr.OpNew, "device_type", int32(t), "the type of a device")
	case !source:
		return fielderr.Absent(fielderr.OpNew, name, "an iterator or a function")
	}
	return nil
}

// sameTypes returns an error that names the first difference of the types of a batch and of its stream. Names and
// metadata may differ: those of the stream apply.
func sameTypes(batch, stream *arrow.Schema) error {
	if batch.NumFields() != stream.NumFields() {
		return fielderr.New(fielderr.OpRead, "RecordBatch", fielderr.Has(fmt.Sprintf("%s, and the schema of the stream %s",
			fielderr.HowMany(batch.NumFields(), "column"), fielderr.HowMany(stream.NumFields(), "field"))), nil, arrow.ErrInvalid)
	}
	for i := range batch.NumFields() {
		if got, want := batch.Field(i).Type, stream.Field(i).Type; !arrow.TypeEqual(got, want) {
			return fielderr.Invalid(fielderr.OpRead, fmt.Sprintf("RecordBatch.Column(%d).type", i), got, fmt.Sprintf("the stream's: %s", fielderr.Type(want)))
		}
	}
	return nil
}

// WrapRecordReader makes a reader of an arrow-go reader, without copying. dev is the device whose
// memory the batches are built in, as for [WrapRecordBatch]. For a table, use arrow-go's
// array.NewTableReader. If rdr has failed and has no schema, the result is as of
// [NewFailedRecordReader]: with rdr's error.
//
// The result is owned by the caller. It holds a reference to rdr. arrow-go's readers must be used
// by one goroutine at a time: after this call, only the result may read from rdr.
//
// A reader of array.ReaderFromIter uses iter.Pull, and counts as made where it is wrapped. If that is a goroutine that is not locked to its
// thread, the iterator runs on a goroutine of its own, as that of [NewRecordReader] does. If it is a callback from C, only callbacks on the
// same thread can read it, as deep in calls between C and Go; elsewhere the stream ends with an error. So does one that is made where
// runtime.LockOSThread has locked the thread. If C releases it elsewhere, it is released once another one is wrapped where it
// was, and else never. Go ends the process if such a reader was made elsewhere than it is wrapped, or if the number of calls of
// runtime.LockOSThread has changed since (golang/go#67499). A program's own reader that uses iter.Pull, or holds one that does, must have a method UsesIterPull(), and is treated
// alike; without the method, Go ends the process if C reads or releases the stream. [NewRecordReader] takes iterators, and has none of
// these limits.
func WrapRecordReader(rdr array.RecordReader, dev device.Device) (*RecordReader, error) {
	if argument.IsNil(rdr) {
		return nil, fielderr.Absent(fielderr.OpWrap, "RecordReader", "a reader of arrow-go")
	}
	if argument.IsNil(dev) {
		return nil, fielderr.Absent(fielderr.OpWrap, "device", "the device that the memory lives on")
	}
	if err := locateOn(new(tree.Location), dev); err != nil {
		return nil, err
	}
	schema := rdr.Schema()
	if schema == nil {
		if err := rdr.Err(); err != nil {
			return failedReader(dev.ID().Type, err), nil
		}
		return nil, fielderr.Invalid(fielderr.OpWrap, "schema", "nil", "a schema")
	}
	rdr.Retain()
	from := &wrappedSource{rdr: rdr, dev: dev}
	t := dev.ID().Type
	check := func(b *RecordBatch) error { return checkBatch(b, schema, t) }
	from.Function = items.Function[*RecordBatch]{Ask: from.next, Stop: rdr.Release, Check: check}
	if usesPull(rdr) {
		return newRecordReader(schema, t, from.pulled()), nil
	}
	if h, ok := rdr.(*hostReader); ok {
		from.StopThen = h.releaseThen
	}
	return newRecordReader(schema, t, from), nil
}

// WrapChunked makes a reader of the chunks of a chunked array, without copying. dev is the device
// whose memory they were built in, as for [WrapArray]. A column of an arrow-go table is a chunked
// array.
//
// The result is owned by the caller. It holds a reference to chunked, which stays the
// caller's.
func WrapChunked(chunked *arrow.Chunked, dev device.Device) (*ArrayReader, error) {
	if chunked == nil {
		return nil, fielderr.Absent(fielderr.OpWrap, "Chunked", "a chunked array of arrow-go")
	}
	if argument.IsNil(dev) {
		return nil, fielderr.Absent(fielderr.OpWrap, "device", "the device that the memory lives on")
	}
	if err := locateOn(new(tree.Location), dev); err != nil {
		return nil, err
	}
	chunked.Retain()
	at := 0
	next := func() (*Array, error) {
		if at == len(chunked.Chunks()) {
			return nil, io.EOF
		}
		at++
		return WrapArray(chunked.Chunk(at-1), dev)
	}
	field := arrow.Field{Type: chunked.DataType(), Nullable: true}
	return newArrayReader(field, dev.ID().Type, &items.Function[*Array]{Ask: next, Stop: chunked.Release}), nil
}
