package cdevice

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/copyplan"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/tree"
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

// CopyToDevice copies an arrow-go record batch to memory of dev. It returns when the
// copy is enqueued: the batch has an event that is complete when the data is there, which
// exports carry along, and for which everything of this package waits by itself. It waits for
// memory only: on the device, and to stage plain host memory in. To page-locked memory, the host
// copies from the memory that it can read: such a copy is made in its turn on the stream, and
// CopyToDevice waits for that.
//
// rec may be changed or released as soon as CopyToDevice returns, except for columns in
// page-locked memory (package hostpinned), which the device reads directly: their memory
// is kept until it has, and must not be changed before that. See [RecordBatch.Synchronize].
//
// All of the copy is one allocation. Only what the rows need is copied: offsets start at
// zero, and each buffer is aligned to 256 bytes and followed by zeros, as cuDF wants it.
//
// The result is owned by the caller; rec stays the caller's. ctx ends waiting, not
// copying. Errors are [FieldError] where the contents do not hold together.
func CopyToDevice(ctx context.Context, rec arrow.RecordBatch, dev device.Device, opts ...CopyOption) (*RecordBatch, error) {
	if err := checkCopy(ctx, dev); err != nil {
		return nil, err
	}
	src, err := WrapRecordBatch(rec, device.CPUDevice())
	if err != nil {
		return nil, err
	}
	defer src.Release()
	return src.CopyTo(ctx, dev, opts...)
}

// CopyTo copies the batch to memory of dev, from whatever memory it lives in: the
// host's, the same device's or another's. It is ordered after the batch's event. All of
// [CopyToDevice] holds; memory of a device is kept until it has been read.
//
// Where a slice of device memory does not start with a byte of a bitmap, or with the
// first offset of a list, these small buffers take a way over the host, for which the copy
// waits. A copy from one type of device to another (of CUDA to ROCm) goes over the CPU, and waits. A copy to the CPU waits, as CopyToHost does; WithStream then names a stream of the device that is copied from.
func (b *RecordBatch) CopyTo(ctx context.Context, dev device.Device, opts ...CopyOption) (*RecordBatch, error) {
	if err := b.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer b.mem.Release()
	if err := checkCopy(ctx, dev); err != nil {
		return nil, err
	}
	if isCPU(dev) {
		rec, err := b.CopyToHost(ctx, nil, opts...)
		if err != nil {
			return nil, err
		}
		defer rec.Release()
		own, err := WrapRecordBatch(rec, dev)
		if err == nil {
			own.metadata = b.metadata
		}
		return own, err
	}
	if isForeign(b.at(), dev) {
		here, err := b.CopyTo(ctx, device.CPUDevice())
		if err != nil {
			return nil, err
		}
		defer here.Release()
		return here.CopyTo(ctx, dev, opts...)
	}
	on, err := streamOf(opts)
	if err != nil {
		return nil, err
	}
	t, err := copyplan.ToDevice(ctx, b.tree(), dev, on)
	if err != nil {
		return nil, err
	}
	own := newRecordBatch(t.Mem, t.At, b.schema, b.rows, t.Nodes)
	own.metadata = b.metadata
	return own, nil
}

// CopyTo copies the array; see [RecordBatch.CopyTo].
func (a *Array) CopyTo(ctx context.Context, dev device.Device, opts ...CopyOption) (*Array, error) {
	if err := a.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer a.mem.Release()
	if err := checkCopy(ctx, dev); err != nil {
		return nil, err
	}
	if isCPU(dev) {
		arr, err := a.CopyToHost(ctx, nil, opts...)
		if err != nil {
			return nil, err
		}
		defer arr.Release()
		own, err := WrapArray(arr, dev)
		if err == nil {
			own.field = a.field
		}
		return own, err
	}
	if isForeign(a.at(), dev) {
		here, err := a.CopyTo(ctx, device.CPUDevice())
		if err != nil {
			return nil, err
		}
		defer here.Release()
		return here.CopyTo(ctx, dev, opts...)
	}
	on, err := streamOf(opts)
	if err != nil {
		return nil, err
	}
	t, err := copyplan.ToDevice(ctx, a.tree(), dev, on)
	if err != nil {
		return nil, err
	}
	return newArray(t.Mem, t.At, a.field, t.Nodes[0]), nil
}

// isForeign reports whether neither the CPU nor a device of the type of dev can access the memory:
// a copy goes over the CPU.
func isForeign(at tree.Location, dev device.Device) bool {
	return tree.StreamType(at.ID.Type) != tree.StreamType(dev.ID().Type) && !at.CPUAccessible()
}

// isCPU reports whether a copy is one to the CPU, which has no way to memory of a device: the
// source's device makes it.
func isCPU(dev device.Device) bool { return dev != nil && dev.ID().Type == device.CPU }
