package cdevice

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/copyplan"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
)

// CopyOption changes how a copy is made. See [ImportOption] for nil.
type CopyOption func(*copyOptions)

type copyOptions struct {
	nilOption
	stream device.Stream
}

// WithStream makes the copy part of the work of s, a stream of the device that is
// copied to or from: of another one, it is an error that wraps arrow.ErrInvalid. The copy
// reads what work enqueued on s before it has written. Without WithStream, copies run on a
// stream of the device's own, ordered after the batch's event and nothing else. s must stay
// open until the copy is done.
//
// CopyToHost reads page-locked and managed memory with the host, and waits for s before that.
// CopyTo waits for s only where the host must read offsets or bitmaps of device memory. It
// does not wait where the host can read the memory, which holds for page-locked memory: its
// offsets must be there when the copy is called, or be covered by the batch's event.
func WithStream(s device.Stream) CopyOption {
	return func(o *copyOptions) {
		o.stream = s
		o.need(fielderr.OpCopy, "WithStream", s, "a stream")
	}
}

// streamOf returns the stream that the options name, or nil; an error if an option was given nil.
func streamOf(opts []CopyOption) (device.Stream, error) {
	var o copyOptions
	apply(&o, opts)
	return o.stream, o.err
}

// CopyToHost copies the batch into memory of mem (nil: arrow-go's default
// allocator) and returns it as an arrow-go record batch that shares nothing with
// this one. It first waits for the batch's event, if there is one. ctx ends a wait
// with an error, and not the copying itself: memory that is still written to is kept
// until that is over.
//
// Only what the rows need is copied: a slice does not drag along what it was cut
// from, and the copy's arrays start at offset zero. The whole copy is one allocation of
// mem, which lives until the last of its columns is released. Into page-locked memory
// (package hostpinned) a GPU copies at the speed of the bus.
//
// Null counts are counted, except where the producer says that there are no nulls, and
// for memory of a device, where they stay unknown to arrow-go until it is asked.
//
// The result is owned by the caller. Errors are [FieldError] where the contents
// do not hold together, and wrap device.ErrNotSupported where neither the host nor
// a backend can read the memory.
func (b *RecordBatch) CopyToHost(ctx context.Context, mem memory.Allocator, opts ...CopyOption) (arrow.RecordBatch, error) {
	if err := b.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer b.mem.Release()
	on, err := streamOf(opts)
	if err != nil {
		return nil, err
	}
	columns, err := copyplan.ToHost(ctx, b.tree(), mem, on)
	if err != nil {
		return nil, err
	}
	defer hostread.ReleaseAll(columns)
	return hostread.NewRecordBatch(b.schema, columns, b.rows)
}

// CopyToHost copies the array; see [RecordBatch.CopyToHost].
func (a *Array) CopyToHost(ctx context.Context, mem memory.Allocator, opts ...CopyOption) (arrow.Array, error) {
	if err := a.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer a.mem.Release()
	on, err := streamOf(opts)
	if err != nil {
		return nil, err
	}
	arrays, err := copyplan.ToHost(ctx, a.tree(), mem, on)
	if err != nil {
		return nil, err
	}
	return arrays[0], nil
}
