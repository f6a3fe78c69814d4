//go:build cgo && unix

package pyextension

import (
	"cmp"
	"context"
	"io"
	"sync"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// reader is a RecordReader that Python holds.
type reader struct {
	r     *cdevice.RecordReader
	scope *scope // of the function that returned it: its context ends with the reader

	mu       sync.Mutex
	consumed string // the consumer of the rest of the stream
	closed   bool
	next     chan batch             // of a Next that is in progress, or whose batch was not taken
	back     []*cdevice.RecordBatch // that were read for a call whose reply was not taken

	turn chan struct{} // has an element while a call reads
}

type batch struct {
	*cdevice.RecordBatch
	err error
}

func (b batch) release() {
	if b.RecordBatch != nil {
		b.Release()
	}
}

// errGoexit is the error of a read whose goroutine ended before the read returned.
var errGoexit = &exception{kind: "Panic", text: "the code of the stream ended its goroutine with runtime.Goexit"}

func newReader(r *cdevice.RecordReader, s *scope) *reader {
	s.hold()
	return &reader{r: r, scope: s, turn: make(chan struct{}, 1)}
}

// Next returns the next batch, owned by the caller, or nil at the end. The end of ctx ends the wait and
// loses nothing: the batch is that of the next call. After the end of ctx no read begins, as the stream may end before it.
func (r *reader) Next(ctx context.Context) (*cdevice.RecordBatch, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	b, next, err := r.begin()
	if b != nil || err != nil {
		return b, err
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

// begin returns a batch that was given back, or the channel of the Next in progress. It starts one if there is none.
func (r *reader) begin() (*cdevice.RecordBatch, chan batch, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.consumed != "" || r.closed {
		return nil, nil, r.errConsumed()
	}
	if len(r.back) > 0 {
		b := r.back[0]
		r.back = r.back[1:]
		return b, nil, nil
	}
	if r.next == nil {
		r.next = r.start()
	}
	return nil, r.next, nil
}

// start reads the next batch on a goroutine. The channel gets it, with a reference; nil without an error is the end.
func (r *reader) start() chan batch {
	next := make(chan batch, 1)
	r.r.Retain()
	r.scope.hold()
	go func() {
		read := batch{err: errGoexit}
		defer func() {
			r.r.Release()
			r.scope.drop()
			next <- read
		}()
		read = r.read()
	}()
	return next
}

// read reads the next batch, as start does, on the calling goroutine.
func (r *reader) read() batch {
	if !r.r.Next() {
		return batch{nil, r.r.Err()}
	}
	b := r.r.RecordBatch()
	b.Retain()
	return batch{b, nil}
}

// discard ends the context, since the source may wait for it, and releases the batch that start reads.
func (r *reader) discard(next chan batch) {
	r.scope.end()
	go func() {
		b := <-next
		b.release()
	}()
}

// unread makes batches, whose references stay the caller's, the next ones again.
func (r *reader) unread(batches []*cdevice.RecordBatch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.consumed != "" || r.closed {
		return
	}
	for _, b := range batches {
		b.Retain()
	}
	r.back = append(batches, r.back...)
}

// take claims the rest of the stream for one consumer, named by what, and returns the reader, borrowed.
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
	if r.next != nil || len(r.back) > 0 || len(r.turn) > 0 {
		return valueErrorf("a read of the stream is in progress, or was cancelled and its batch was not taken: read it first")
	}
	return nil
}

// rest returns a reader of the rest of the stream, owned by the caller, which takes it when it is asked for the
// first batch. Until then others can be lent: a consumer such as DuckDB asks for one to see the schema, and for another
// one to read.
func (r *reader) rest(what string) (*cdevice.RecordReader, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.errTaken(); err != nil {
		return nil, err
	}
	taken := false
	reading := consumerRead{reader: r}
	next := func(context.Context) (*cdevice.RecordBatch, error) {
		if !taken {
			if _, err := r.take(what); err != nil {
				return nil, err
			}
			taken = true
		}
		b := reading.next()
		if b.RecordBatch == nil {
			return nil, cmp.Or(b.err, io.EOF)
		}
		return b.RecordBatch, nil
	}
	r.r.Retain()
	lent, err := cdevice.NewRecordReaderFunc(context.Background(), r.r.Schema(), r.r.DeviceType(), next, r.r.Release)
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
	next, back := r.next, r.back
	r.next, r.back = nil, nil
	r.closed = true
	r.mu.Unlock()
	releaseAll(back)
	if next != nil {
		r.discard(next)
	}
	r.r.Release()
	r.scope.drop()
}
