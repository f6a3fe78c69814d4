package cdevice

import (
	"context"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostview"
	"github.com/arrowdevice/arrowdevice/internal/items"
	"github.com/arrowdevice/arrowdevice/internal/refcount"
)

// HostReader returns an arrow-go reader of the batches that are left in r. Batches in memory that
// the CPU can access, as [RecordBatch.HostView] defines it, are viewed; others are copied into memory of mem
// ([RecordBatch.CopyToHost]), or of arrow-go's default allocator if mem is nil. It waits for each
// batch's event. The end of ctx ends the wait, and the stream. With a nil ctx the reader has an
// error and no batch.
//
// The result is owned by the caller. It holds a reference to r until its end or its last Release.
// As with [RecordReader.Release], a Release before the end does not wait for the source;
// [RecordReader.Close] of r does. All record batches have the schema of r, metadata included. A
// record batch is borrowed from the result until the next call of Next, as with every arrow-go
// reader; Retain keeps it.
func (r *RecordReader) HostReader(ctx context.Context, mem memory.Allocator) array.RecordReader {
	h := &hostReader{from: r, ctx: ctx, mem: mem}
	h.refs.InitTraced("HostReader")
	if !r.r.Hold() {
		h.from, h.err = nil, fielderr.Released("RecordReader")
	}
	h.schema = r.schema
	if h.err == nil {
		if h.err = fielderr.CheckContext(fielderr.OpRead, ctx); h.err == nil && h.schema == nil {
			h.err = r.Err() // which cdata, for one, asks for when there is no schema
		}
		if h.err != nil {
			h.close()
		}
	}
	return h
}

// hostReader is an array.RecordReader. As all of them, it must be used by one goroutine at a time.
type hostReader struct {
	refs    refcount.Count
	from    *RecordReader               // a reference; nil once it is dropped
	ended   *items.Reader[*RecordBatch] // of from, if its last reference was dropped
	ctx     context.Context
	mem     memory.Allocator
	schema  *arrow.Schema
	current arrow.RecordBatch
	err     error
	tooMany func() // or nil; see Lenient
}

// Lenient is for package cdata: record batches of the reader call tooMany for a Release too many; see
// hostview.Batch.Lenient.
func (h *hostReader) Lenient(tooMany func()) { h.tooMany = tooMany }

func (h *hostReader) Retain() { h.refs.Retain() }

func (h *hostReader) Release() {
	if h.refs.Release() {
		defer h.close()
		h.dropCurrent()
	}
}

// Abandon is Release for a reader that the garbage collector found: it keeps the current record batch, as slices of its
// values may still be in use.
func (h *hostReader) Abandon() {
	if h.refs.Release() {
		h.close()
	}
}

// releaseThen is Release, and calls f afterwards: if both this reader and the reader below had no
// other reference, when the source of the latter is no longer in use.
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
		defer h.close()
		h.dropCurrent()
	}
}

func (h *hostReader) Schema() *arrow.Schema          { return h.schema }
func (h *hostReader) RecordBatch() arrow.RecordBatch { return h.current }
func (h *hostReader) Record() arrow.RecordBatch      { return h.current } // deprecated, but part of the interface
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
	if view, ok := h.current.(*hostview.Batch); ok {
		h.own(view)
	}
	return err
}

func (h *hostReader) own(view *hostview.Batch) {
	if h.tooMany != nil {
		view.Lenient(h.schema, h.tooMany)
	} else {
		view.Own()
	}
}

// read views or copies b, and takes the reference to it.
func (h *hostReader) read(b *RecordBatch) (arrow.RecordBatch, error) {
	defer b.Release()
	if at := b.atForCPU(); at.CPUAccessible() {
		return b.hostView(h.ctx, at)
	}
	return b.CopyToHost(h.ctx, h.mem)
}

// dropCurrent drops the current batch, whose release may call a program's code, which may panic.
func (h *hostReader) dropCurrent() {
	if current := h.current; current != nil {
		h.current = nil
		if view, ok := current.(*hostview.Batch); ok && h.tooMany == nil {
			view.Disown()
		}
		current.Release()
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
