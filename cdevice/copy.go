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

// CopyOption is an option of a copy. A nil option is an error.
type CopyOption func(*copyOptions)

type copyOptions struct {
	err    error
	stream device.Stream
}

// WithStream makes the copy part of the work on s, a stream of the device that is copied to or from; a
// stream of another device is an error that wraps arrow.ErrInvalid. The copy sees the results of all
// work enqueued on s before. Without WithStream, a copy runs on a stream of its own that is ordered
// after the batch's event only. s must stay open until the copy has completed.
//
// CopyToHost reads pinned (page-locked) and managed memory with the CPU, and waits for s first. CopyTo
// waits for s only if the CPU must read offsets or bitmaps of device memory. It does not wait for s if
// the CPU can access the memory: offsets in pinned memory must be complete when CopyTo is called, or be
// covered by the batch's event.
func WithStream(s device.Stream) CopyOption {
	return func(o *copyOptions) {
		o.stream = s
		need(&o.err, fielderr.OpCopy, "WithStream", s, "a stream")
	}
}

// streamOf returns the stream that the options name, or nil; an error if an option was given nil.
func streamOf(opts []CopyOption) (device.Stream, error) {
	var o copyOptions
	apply(fielderr.OpCopy, &o, &o.err, opts)
	return o.stream, o.err
}

// CopyToHost copies the batch into memory of mem (arrow-go's default allocator if nil), and returns it
// as an arrow-go record batch that shares nothing with this batch. It first waits for the batch's
// event. ctx ends a wait with an error, but does not stop a copy that is enqueued: its memory is kept
// until it has completed.
//
// Only the bytes that the rows need are copied, and the arrays of the copy start at offset zero. The
// copy is one allocation of mem, which lives until the last column is released: retaining one column
// retains the whole allocation. A GPU copies into pinned (page-locked) memory, such as that of package
// hostpinned, at the speed of the bus. To other memory the CPU copies through pinned staging memory: up to
// four goroutines do, if the batch has 1 MiB or more, which have ended when CopyToHost returns.
//
// Nulls are counted, unless the producer declares that there are none. For memory of a device, an
// unknown null count stays unknown until arrow-go counts it.
//
// The result is owned by the caller. An error is a [FieldError] if the contents are inconsistent, and
// wraps device.ErrNotSupported if neither the CPU nor a backend can access the memory.
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
	return hostread.NewRecordBatch(b.schema, columns, b.rows, b.Metadata())
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

// CopyToDevice copies an arrow-go record batch to memory of dev. It returns when the copy is enqueued:
// the result has an event that is complete when the copy has completed. Functions of this package wait
// for the event, and exports pass it on as sync_event.
//
// CopyToDevice itself waits only for free memory: on the device, and for staging memory of the CPU. If
// dev is the pinned (page-locked) memory of a GPU, the CPU makes the copy of memory that it can access,
// in its turn on the stream, and CopyToDevice waits for that.
//
// rec may be changed or released as soon as CopyToDevice returns, except for columns in pinned memory
// (package hostpinned), which the device reads directly: that memory is kept until the copy has
// completed, and must not be changed before. See [RecordBatch.Synchronize].
//
// The copy is one allocation. Only the bytes that the rows need are copied: offsets start at zero, and
// each buffer is aligned to 256 bytes and padded with zeros, as cuDF requires. Memory of the CPU, and of
// backends that align less, is aligned to 64 bytes.
//
// The result is owned by the caller; rec stays the caller's. ctx ends a wait, but does not stop a copy
// that is enqueued. An error is a [FieldError] if the contents are inconsistent.
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

// CopyTo copies the batch to memory of dev, from memory of the CPU, of the same device or of another
// one. The copy is ordered after the batch's event. Everything said of [CopyToDevice] holds; memory of
// a device is kept until it has been read.
//
// If a slice of device memory does not start at a byte of a bitmap, or at the first offset of a list,
// these small buffers are copied through the CPU, and CopyTo waits for them. A copy from one type of
// device to another (from CUDA to ROCm) goes through the CPU, and CopyTo waits for it. A copy to the
// CPU waits as CopyToHost does; [WithStream] then names a stream of the device that is copied from.
func (b *RecordBatch) CopyTo(ctx context.Context, dev device.Device, opts ...CopyOption) (*RecordBatch, error) {
	if err := b.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer b.mem.Release()
	if err := checkCopy(ctx, dev); err != nil {
		return nil, err
	}
	switch {
	case isCPU(dev):
		return b.copyToCPU(ctx, dev, opts)
	case isForeign(b.at(), dev):
		return copyOverCPU(ctx, b, dev, opts)
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

// copyToCPU is CopyTo to the CPU. The CPU cannot access memory of a device, so the device of the
// batch makes the copy.
func (b *RecordBatch) copyToCPU(ctx context.Context, cpu device.Device, opts []CopyOption) (*RecordBatch, error) {
	rec, err := b.CopyToHost(ctx, nil, opts...)
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	return WrapRecordBatch(rec, cpu)
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
	switch {
	case isCPU(dev):
		return a.copyToCPU(ctx, dev, opts)
	case isForeign(a.at(), dev):
		return copyOverCPU(ctx, a, dev, opts)
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

// copyToCPU is [RecordBatch.copyToCPU] for the array.
func (a *Array) copyToCPU(ctx context.Context, cpu device.Device, opts []CopyOption) (*Array, error) {
	arr, err := a.CopyToHost(ctx, nil, opts...)
	if err != nil {
		return nil, err
	}
	defer arr.Release()
	own, err := WrapArray(arr, cpu)
	if err == nil {
		own.field = a.field
	}
	return own, err
}

func isCPU(dev device.Device) bool { return dev.ID().Type == device.CPU }

// Copies between two backends go over the CPU: a backend is given no address of another one's memory.

// isForeign reports whether neither the CPU nor a device of dev's type can access the memory.
func isForeign(at tree.Location, dev device.Device) bool {
	return tree.StreamType(at.ID.Type) != tree.StreamType(dev.ID().Type) && !at.CPUAccessible()
}

// copyOverCPU is CopyTo in two steps, of memory that is foreign to dev.
func copyOverCPU[T interface {
	CopyTo(context.Context, device.Device, ...CopyOption) (T, error)
	Release()
}](ctx context.Context, from T, dev device.Device, opts []CopyOption) (T, error) {
	here, err := from.CopyTo(ctx, device.CPUDevice())
	if err != nil {
		return here, err
	}
	defer here.Release()
	return here.CopyTo(ctx, dev, opts...)
}
