//go:build cgo && unix

package pyextension

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/handle"
)

type kind byte

const (
	kindBatch  kind = 'b'
	kindReader kind = 'r'
	kindArray  kind = 'a'
	kindSchema kind = 's'
)

func (k kind) String() string {
	return map[kind]string{kindBatch: "RecordBatch", kindReader: "RecordReader", kindArray: "Array", kindSchema: "Schema"}[k]
}

// object is what a Python object of this library holds, under a handle. One of its fields is set, as its
// kind says; the object owns it.
type object struct {
	kind   kind
	handle handle.Word

	batch  *cdevice.RecordBatch
	array  *cdevice.Array
	schema *arrow.Schema
	reader *reader

	users atomic.Int64 // the handle, and each call that uses the object
}

// live counts the objects that have a handle.
var live atomic.Int64

// issue gives the object a handle.
func (o *object) issue() *object {
	o.users.Store(1)
	live.Add(1)
	o.handle = handle.New(o)
	return o
}

// use returns the object of a handle, which stays valid until its drop, even if its handle is released.
func use(w handle.Word) (*object, error) {
	if o, ok := handle.Get(w).(*object); ok {
		for n := o.users.Load(); n > 0; n = o.users.Load() {
			if o.users.CompareAndSwap(n, n+1) {
				return o, nil
			}
		}
	}
	return nil, fmt.Errorf("%w: the object was closed", cdevice.ErrReleased)
}

// Release is the end of the handle.
func (o *object) Release() {
	live.Add(-1)
	o.drop()
}

func (o *object) drop() {
	if o.users.Add(-1) > 0 {
		return
	}
	switch o.kind {
	case kindBatch:
		o.batch.Release()
	case kindArray:
		o.array.Release()
	case kindReader:
		o.reader.release()
	}
}

func (o *object) deviceID() device.ID {
	switch o.kind {
	case kindBatch:
		return o.batch.DeviceID()
	case kindArray:
		return o.array.DeviceID()
	case kindReader:
		return device.ID{Type: o.reader.r.DeviceType(), Ordinal: device.NoOrdinal}
	}
	return device.CPUDevice().ID()
}

func (o *object) rows() int64 {
	switch o.kind {
	case kindBatch:
		return o.batch.NumRows()
	case kindArray:
		return o.array.Len()
	}
	return -1
}

// schemaOf is the schema of a batch, reader or schema.
func (o *object) schemaOf() (*arrow.Schema, error) {
	switch o.kind {
	case kindBatch:
		return o.batch.Schema(), nil
	case kindReader:
		return o.reader.r.Schema(), nil
	case kindSchema:
		return o.schema, nil
	}
	return nil, typeErrorf("an %s has a field, not a schema", o.kind)
}

// reader is a RecordReader that Python holds.
type reader struct {
	r     *cdevice.RecordReader
	scope *scope // of the function that returned it: its context ends with the reader

	mu       sync.Mutex
	consumed string // what took the rest of the stream
	closed   bool
	next     chan batch // of a Next that is in progress, or whose batch was not taken

	turn chan struct{} // has an element while a call reads
}

type batch struct {
	*cdevice.RecordBatch
	err error
}

func newReader(r *cdevice.RecordReader, s *scope) *reader {
	s.hold()
	return &reader{r: r, scope: s, turn: make(chan struct{}, 1)}
}

// Next returns the next batch, owned by the caller, or nil at the end. The end of ctx ends the wait and
// loses nothing: the batch is that of the next call.
func (r *reader) Next(ctx context.Context) (*cdevice.RecordBatch, error) {
	next, err := r.begin()
	if err != nil {
		return nil, err
	}
	select {
	case b := <-next:
		r.mu.Lock()
		r.next = nil
		r.mu.Unlock()
		return b.RecordBatch, b.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// begin returns the channel of the Next in progress, and starts one if there is none.
func (r *reader) begin() (chan batch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.consumed != "" || r.closed {
		return nil, r.errConsumed()
	}
	if r.next == nil {
		next := make(chan batch, 1)
		r.next = next
		r.r.Retain()
		r.scope.hold()
		go func() {
			defer r.scope.drop()
			defer r.r.Release()
			if !r.r.Next() {
				next <- batch{nil, r.r.Err()}
				return
			}
			b := r.r.RecordBatch()
			b.Retain()
			next <- batch{b, nil}
		}()
	}
	return r.next, nil
}

// unread makes a batch, whose reference stays the caller's, the next one again.
func (r *reader) unread(b *cdevice.RecordBatch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.consumed != "" || r.closed {
		return
	}
	b.Retain()
	r.next = make(chan batch, 1)
	r.next <- batch{b, nil}
}

// take gives the rest of the stream to one consumer, what, and returns the reader, borrowed.
func (r *reader) take(what string) (*cdevice.RecordReader, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.errTaken(); err != nil {
		return nil, err
	}
	r.consumed = what
	return r.r, nil
}

// errTaken is why the rest of the stream cannot be given to a consumer, or nil.
func (r *reader) errTaken() error {
	if r.consumed != "" {
		return r.errConsumed()
	}
	if r.next != nil || len(r.turn) > 0 {
		return valueErrorf("a read of the stream is in progress, or was cancelled and its batch was not taken: read it first")
	}
	return nil
}

// lend returns a reader of the rest of the stream, owned by the caller, which takes it when it is asked for the
// first batch. Until then others can be lent: a consumer such as DuckDB asks for one to see the schema, and for another
// one to read.
func (r *reader) lend(what string) (*cdevice.RecordReader, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.errTaken(); err != nil {
		return nil, err
	}
	taken := false
	next := func() (*cdevice.RecordBatch, error) {
		if !taken {
			if _, err := r.take(what); err != nil {
				return nil, err
			}
			taken = true
		}
		if !r.r.Next() {
			return nil, cmp.Or(r.r.Err(), io.EOF)
		}
		b := r.r.RecordBatch()
		b.Retain()
		return b, nil
	}
	r.r.Retain()
	lent, err := cdevice.NewRecordReaderFunc(r.r.Schema(), r.r.DeviceType(), next, r.r.Release)
	if err != nil {
		r.r.Release()
	}
	return lent, err
}

func (r *reader) errConsumed() error {
	return valueErrorf("the stream was consumed by %s; a stream is read once: read_all() keeps its batches", cmp.Or(r.consumed, "close()"))
}

func (r *reader) release() {
	r.mu.Lock()
	next := r.next
	r.next = nil
	r.closed = true
	r.mu.Unlock()
	if next != nil {
		r.scope.end() // the source may wait for it
		go func() {
			if b := <-next; b.RecordBatch != nil {
				b.Release()
			}
		}()
	}
	r.r.Release()
	r.scope.drop()
}
