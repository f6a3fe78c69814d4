package cdevice

import (
	"io"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/refcount"
)

// RecordReader is a stream of record batches that have one schema and live on one type of
// device: one that was imported ([ImportRecordReader]), or one that a program makes to
// export it ([NewRecordReader], [WrapRecordReader], [CopyReaderToDevice]).
//
// Batches are taken with All, or with Next as arrow-go's readers have it. The stream ends
// with its last batch or its first error. A RecordReader may be used from any goroutine;
// batches are asked for by one at a time. Next and RecordBatch are one goroutine's. The
// code that makes the batches must not ask the same reader for one.
//
// It is reference counted and starts with one reference. Batches outlive it.
type RecordReader struct {
	r      reader[*RecordBatch]
	schema *arrow.Schema
}

// Schema returns the schema of all batches.
func (r *RecordReader) Schema() *arrow.Schema { return r.schema }

// DeviceType is the type of the device that all batches live on; they may live on several
// devices of the type.
func (r *RecordReader) DeviceType() device.Type { return r.r.deviceType }

// All yields the batches that are left, then an error if the stream ended with one. The
// batch borrows from the reader until the next iteration; Retain to keep it. The loop may
// be left and another one begun: it goes on where the first stopped.
func (r *RecordReader) All() iter.Seq2[*RecordBatch, error] { return r.r.all }

// Next takes the next batch, which RecordBatch then returns, and says whether there is
// one. Where there is none, Err says why.
func (r *RecordReader) Next() bool { return r.r.step() }

// RecordBatch is the batch that Next took. It borrows from the reader until the next
// Next; Retain to keep it.
func (r *RecordReader) RecordBatch() *RecordBatch { return r.r.current }

// Err is the error that ended the stream, or nil.
func (r *RecordReader) Err() error { return r.r.failure() }

// Retain adds a reference; see [RecordBatch.Retain].
func (r *RecordReader) Retain() { r.r.refs.Retain() }

// Release drops a reference. The last one ends the stream, wherever it is: what it is
// made of is let go, and the release callback of an imported one is called. Where another
// goroutine is asking for a batch just now, that happens when it has its answer, and no
// other batch is asked for.
func (r *RecordReader) Release() { r.r.release() }

func newRecordReader(schema *arrow.Schema, t device.Type, s supply[*RecordBatch]) *RecordReader {
	r := &RecordReader{schema: schema}
	r.r.init("RecordReader", t, s)
	r.r.fit = func(b *RecordBatch) *RecordBatch { return b.under(schema) }
	return r
}

// ArrayReader is a stream of arrays of one type: the chunks of a chunked array, say. It is
// to [Array] what [RecordReader] is to [RecordBatch].
type ArrayReader struct {
	r     reader[*Array]
	field arrow.Field
}

// Field is the field of all arrays: their type, and what the producer's schema says besides.
func (r *ArrayReader) Field() arrow.Field { return r.field }

// DeviceType is the type of the device that all arrays live on.
func (r *ArrayReader) DeviceType() device.Type { return r.r.deviceType }

// All yields the arrays that are left; see [RecordReader.All].
func (r *ArrayReader) All() iter.Seq2[*Array, error] { return r.r.all }

// Next takes the next array; see [RecordReader.Next].
func (r *ArrayReader) Next() bool { return r.r.step() }

// Array is the array that Next took. It borrows from the reader until the next Next;
// Retain to keep it.
func (r *ArrayReader) Array() *Array { return r.r.current }

// Err is the error that ended the stream, or nil.
func (r *ArrayReader) Err() error { return r.r.failure() }

// Retain adds a reference; see [RecordBatch.Retain].
func (r *ArrayReader) Retain() { r.r.refs.Retain() }

// Release drops a reference; see [RecordReader.Release].
func (r *ArrayReader) Release() { r.r.release() }

func newArrayReader(field arrow.Field, t device.Type, s supply[*Array]) *ArrayReader {
	r := &ArrayReader{field: field}
	r.r.init("ArrayReader", t, s)
	return r
}

// counted is a *RecordBatch or an *Array.
type counted interface {
	comparable
	Retain()
	Release()
}

// reader is what RecordReader and ArrayReader have in common.
type reader[T counted] struct {
	refs       refcount.Count
	deviceType device.Type
	fit        func(T) T // what an item is made before it is given out; nil: nothing

	// gone says that the last reference is. Whoever holds mu then, or gets it, ends the
	// stream: nobody waits for a call that is under way.
	gone atomic.Bool
	end  atomic.Pointer[streamEnd] // nil before the end

	mu      sync.Mutex // held while the supply is asked: its calls are serialised
	supply  supply[T]
	closed  bool
	current T // that step took
}

// streamEnd is how a stream ended: with io.EOF, or with an error.
type streamEnd struct{ err error }

func (r *reader[T]) init(kind string, t device.Type, s supply[T]) {
	r.refs.InitTraced(kind)
	r.deviceType, r.supply = t, s
}

// hold adds a reference, unless the last one is gone.
func (r *reader[T]) hold() bool { return r.refs.TryRetain() }

func (r *reader[T]) release() {
	if r.refs.Release() {
		r.gone.Store(true)
		r.finish()
	}
}

// finish ends the stream, once, if the last reference is gone and no call is under way.
// Whoever had mu calls it after.
func (r *reader[T]) finish() {
	if !r.gone.Load() || !r.mu.TryLock() {
		return
	}
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	r.closed = true
	defer r.supply.close()
	var none T
	if r.current != none {
		last := r.current
		r.current = none
		last.Release()
	}
}

// pull returns the next item, owned by the caller, or the error that ended the stream:
// io.EOF where that was the last item. Code of the program that panics has failed.
func (r *reader[T]) pull() (item T, err error) {
	defer r.finish()
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ask()
}

// ask is pull for who holds mu.
func (r *reader[T]) ask() (item T, err error) {
	if r.gone.Load() {
		return item, readReleased("reader")
	}
	if end := r.end.Load(); end != nil {
		return item, end.err
	}
	defer func() {
		if v := recover(); v != nil {
			err = panicError(v)
		}
		if err != nil {
			r.end.Store(&streamEnd{err})
		}
	}()
	if item, err = r.supply.next(); err == nil && r.fit != nil {
		item = r.fit(item)
	}
	return item, err
}

func (r *reader[T]) all(yield func(T, error) bool) {
	one := func(item T) bool {
		defer item.Release()
		return yield(item, nil)
	}
	for {
		item, err := r.pull()
		if err == nil {
			if !one(item) {
				return
			}
			continue
		}
		if err != io.EOF { // itself: an error that wraps it is an error
			var none T
			yield(none, err)
		}
		return
	}
}

func (r *reader[T]) step() bool {
	r.dropCurrent()
	r.take()
	r.finish()
	if r.gone.Load() {
		r.end.CompareAndSwap(nil, &streamEnd{readReleased("reader")})
		return false
	}
	return r.end.Load() == nil
}

// take makes the next item the current one, if there is one.
func (r *reader[T]) take() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if item, err := r.ask(); err == nil {
		r.current = item
	}
}

// dropCurrent releases the current item, without the lock: that may call into C.
func (r *reader[T]) dropCurrent() {
	var none T
	r.mu.Lock()
	last := r.current
	r.current = none
	r.mu.Unlock()
	if last != none {
		last.Release()
	}
}

// failure is the error that the stream ended with, or nil.
func (r *reader[T]) failure() error {
	if end := r.end.Load(); end != nil && end.err != io.EOF {
		return end.err
	}
	return nil
}
