package cdevice

import (
	"io"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
)

// RecordReader is a stream of record batches that have one schema and live on one type of
// device: one that was imported ([ImportRecordReader]), or one that a program makes to
// export it ([NewRecordReader], [WrapRecordReader], [CopyReaderToDevice]).
//
// Batches are taken with All, or with Next as arrow-go's readers have it. The stream ends
// with its last batch or its first error. A RecordReader may be used from any goroutine;
// batches are asked for by one at a time. Next, RecordBatch and Err are one goroutine's.
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

// Retain adds a reference. It may be called from any goroutine.
func (r *RecordReader) Retain() { r.r.refs.Add(1) }

// Release drops a reference. The last one ends the stream, wherever it is: what it is
// made of is let go, and the release callback of an imported one is called. Where another
// goroutine is asking for a batch just now, that happens when it has its answer.
func (r *RecordReader) Release() { r.r.release() }

func newRecordReader(schema *arrow.Schema, t device.Type, s supply[*RecordBatch]) *RecordReader {
	r := &RecordReader{schema: schema}
	r.r.init(t, s)
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

// Retain adds a reference. It may be called from any goroutine.
func (r *ArrayReader) Retain() { r.r.refs.Add(1) }

// Release drops a reference; see [RecordReader.Release].
func (r *ArrayReader) Release() { r.r.release() }

func newArrayReader(field arrow.Field, t device.Type, s supply[*Array]) *ArrayReader {
	r := &ArrayReader{field: field}
	r.r.init(t, s)
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
	refs       atomic.Int64
	deviceType device.Type

	mu     sync.Mutex // held while the supply is asked: its calls are serialised
	supply supply[T]
	end    error // io.EOF, or the error that the stream ended with; nil before

	current T // that step took
}

func (r *reader[T]) init(t device.Type, s supply[T]) {
	r.refs.Store(1)
	r.deviceType, r.supply = t, s
}

// pull returns the next item, owned by the caller, or the error that ended the stream:
// io.EOF where that was the last item. Code of the program that panics has failed.
func (r *reader[T]) pull() (item T, err error) {
	if !r.hold() {
		return item, readReleased("reader")
	}
	defer r.release()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end != nil {
		return item, r.end
	}
	defer func() {
		if v := recover(); v != nil {
			err = panicError(v)
		}
		r.end = err
	}()
	return r.supply.next()
}

// hold adds a reference, unless the last one is gone: a call that is under way keeps the
// stream, whoever releases it.
func (r *reader[T]) hold() bool {
	if r.refs.Add(1) <= 1 {
		r.refs.Add(-1)
		return false
	}
	return true
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
	if !r.hold() {
		return false
	}
	defer r.release()
	r.dropCurrent()
	item, err := r.pull()
	if err != nil {
		return false
	}
	r.current = item
	return true
}

func (r *reader[T]) dropCurrent() {
	var none T
	if r.current != none {
		r.current.Release()
		r.current = none
	}
}

func (r *reader[T]) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.end == io.EOF {
		return nil
	}
	return r.end
}

func (r *reader[T]) release() {
	if r.refs.Add(-1) == 0 {
		r.dropCurrent()
		r.supply.close()
	}
}
