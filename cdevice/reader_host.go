package cdevice

import (
	"context"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/refcount"
)

// HostReader returns an arrow-go reader over the batches that are left in r, for the rest
// of arrow-go: batches in memory that the CPU can access are viewed ([RecordBatch.HostView]),
// others copied into memory of mem ([RecordBatch.CopyToHost]; nil is arrow-go's default
// allocator). It waits for each batch's event. The end of ctx ends a wait, and the stream:
// from then on, no batch is taken from r. With a nil ctx the reader has an error and no batch.
//
// The result is owned by the caller. It holds a reference to r, which it gives back with its
// end or its last Release. What Release of r says of the source holds here too: to wait for
// a source that is in use when the program stops early, Close r. All record batches have the
// schema of r, metadata included. One borrows from the result until its next Next, as
// arrow-go has it; Retain to keep one.
func (r *RecordReader) HostReader(ctx context.Context, mem memory.Allocator) array.RecordReader {
	h := &hostReader{from: r, ctx: ctx, mem: mem}
	h.refs.InitTraced("HostReader")
	if !r.r.Hold() {
		h.from, h.err = nil, fielderr.Released("RecordReader")
	}
	h.schema = r.schema
	if h.err == nil {
		if h.err = fielderr.CheckContext(fielderr.OpRead, ctx); h.err != nil {
			h.close()
		}
	}
	return h
}

// hostReader is an array.RecordReader, and like all of them one goroutine's.
type hostReader struct {
	refs    refcount.Count
	from    *RecordReader               // a reference; nil once it is given back
	ended   *items.Reader[*RecordBatch] // of from, where the last reference was given back
	ctx     context.Context
	mem     memory.Allocator
	schema  *arrow.Schema
	current arrow.RecordBatch
	err     error
}

func (h *hostReader) Retain() { h.refs.Retain() }

func (h *hostReader) Release() {
	if h.refs.Release() {
		h.dropCurrent()
		h.close()
	}
}

// releaseThen is Release. f is called after that; after the last one, when the source of the
// Reader below is not in use any more, if that had no other reference either.
func (h *hostReader) releaseThen(f func()) {
	last := h.refs.Release()
	defer func() { // even if the source panics
		if last && h.ended != nil {
			h.ended.WhenUnused(f)
		} else {
			f()
		}
	}()
	if last {
		h.dropCurrent()
		h.close()
	}
}

func (h *hostReader) Schema() *arrow.Schema          { return h.schema }
func (h *hostReader) RecordBatch() arrow.RecordBatch { return h.current }
func (h *hostReader) Record() arrow.RecordBatch      { return h.current } // of the interface, deprecated
func (h *hostReader) Err() error                     { return h.err }

func (h *hostReader) Next() bool {
	h.dropCurrent()
	if h.err != nil || h.from == nil {
		return false
	}
	defer h.from.r.Use().Part() // until the batch is viewed or copied
	err := h.take()
	if err == nil {
		return true
	}
	if err != io.EOF {
		h.err = err
	}
	h.close()
	return false
}

// take makes the next batch the current one.
func (h *hostReader) take() error {
	if err := fielderr.ContextError(h.ctx, "read"); err != nil {
		return err
	}
	b, err := h.from.r.Pull()
	if err == nil {
		h.current, err = h.read(b)
	}
	return err
}

// read takes the reference to b.
func (h *hostReader) read(b *RecordBatch) (arrow.RecordBatch, error) {
	defer b.Release()
	if b.at().CPUAccessible() {
		return b.HostView(h.ctx)
	}
	return b.CopyToHost(h.ctx, h.mem)
}

func (h *hostReader) dropCurrent() {
	if h.current != nil {
		h.current.Release()
		h.current = nil
	}
}

func (h *hostReader) close() {
	from := h.from
	if from == nil {
		return
	}
	h.from = nil
	h.ended = &from.r
	if !from.r.Release() {
		h.ended = nil
	}
}
