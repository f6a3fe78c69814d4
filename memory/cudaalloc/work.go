package cudaalloc

import (
	"context"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/gpu"
)

// Copy enqueues all ranges on s. Sources and destinations are memory of any GPU that this
// process has open, page-locked, managed or plain host memory. Plain memory is slower,
// and the driver may wait for the copy. Copy does not wait for room on s, as [Device.CopyContext] does.
//
// Where the machine has several GPUs, the driver is asked which of them owns each address.
// Copies between two GPUs need no peer access. A copy between the host and a GPU other than
// that of s runs on a stream of that GPU, in order with s.
//
// After an error, the ranges before the one that the error names are enqueued.
func (d *Device) Copy(ranges []device.Range, s device.Stream) error {
	of, stream, err := d.copiesOn(ranges, s)
	if err != nil {
		return err
	}
	return of.Copy(ranges, stream)
}

// CopyContext is [Device.Copy] that waits while s has no room, until ctx is done: see Streams in the documentation
// of the package. It waits so for the work on s, too, before a copy between page-locked memory of this module. Package
// cdevice copies with it.
func (d *Device) CopyContext(ctx context.Context, ranges []device.Range, s device.Stream) error {
	if err := argument.Context("cuda: copy", ctx); err != nil {
		return err
	}
	of, stream, err := d.copiesOn(ranges, s)
	if err != nil {
		return err
	}
	return of.CopyContext(ctx, ranges, stream)
}

// copiesOn is [Device.on] for copies.
func (d *Device) copiesOn(ranges []device.Range, s device.Stream) (*gpu.GPU, uintptr, error) {
	for i, r := range ranges {
		if r.Size < 0 {
			return nil, 0, fmt.Errorf("cuda: copy on %s: ranges[%d].Size = %d: negative size", d.ID(), i, r.Size)
		}
	}
	of, stream, err := d.on(s)
	if err == nil {
		writesHost(s)
	}
	return of, stream, err
}

// Memset enqueues on s the filling of size bytes at p with value.
func (d *Device) Memset(p device.Ptr, value byte, size int64, s device.Stream) error {
	if size < 0 {
		return fmt.Errorf("cuda: memset on %s: negative size %d", d.ID(), size)
	}
	of, stream, err := d.on(s)
	if err != nil || size == 0 {
		return err
	}
	memory := d.gpu
	if d.kind == device.PinnedMemory || d.kind == device.ManagedMemory {
		writesHost(s)
		memory = of // every GPU reaches it
	}
	return of.Memset(memory, p, value, size, stream)
}

// Prefetch enqueues on s the moving of managed memory to this GPU, so that its
// work finds it there.
func (d *Device) Prefetch(p device.Ptr, size int64, s device.Stream) error {
	return d.prefetch(p, size, d.gpu.Ctx.Ordinal(), s)
}

// PrefetchToHost enqueues on s the moving of managed memory to the host.
func (d *Device) PrefetchToHost(p device.Ptr, size int64, s device.Stream) error {
	return d.prefetch(p, size, cuda.HostOrdinal, s)
}

func (d *Device) prefetch(p device.Ptr, size int64, ordinal int, s device.Stream) error {
	if size < 0 {
		return fmt.Errorf("cuda: prefetch on %s: negative size %d", d.ID(), size)
	}
	of, stream, err := d.on(s)
	if err != nil || size == 0 {
		return err
	}
	return of.Prefetch(p, size, ordinal, stream)
}

// PageLocked reports whether this package page-locked or registered the memory, for
// any GPU of the driver, or allocated it as managed memory.
func (d *Device) PageLocked(p device.Ptr, size int64) bool { return d.gpu.Platform.PageLocked(p, size) }

// Upload enqueues copies from host memory on s. Memory that is not page-locked goes
// through page-locked staging memory, which is filled before Upload returns, by up to four
// goroutines from 1 MiB on: ranges that are neighbours at their destination are one copy, of up
// to 4 MiB. ctx ends the staging with an error. Where 64 MiB are staged on s and not copied yet,
// or 512 MiB on all streams, or s has no room (see Streams in the documentation of the package),
// Upload waits until ctx is done. After an error, part of the copies may be enqueued.
//
// Page-locked and managed memory is copied in its turn on s, without staging, where neighbours are one
// copy, too. On a stream of [Device.CopyStream] that waits for nothing, page-locked ranges of less than
// 64 KiB go through staging memory with the others: no work on s can write them.
//
// The event that it returns is owned by the caller and complete when the copies are. The staging
// memory waits for it too, so it must not be recorded again.
func (d *Device) Upload(ctx context.Context, ranges []device.Range, s device.Stream) (device.Event, error) {
	if err := argument.Context("cuda: upload", ctx); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cuda: upload to %s: %w", d.ID(), err)
	}
	of, stream, err := d.on(s)
	if err != nil {
		return nil, err
	}
	done, err := d.gpu.Upload(ctx, d.kind, ranges, of, stream, isApart(s))
	if err != nil {
		return nil, err
	}
	e := d.newEvent()
	if !done.IsOf(d.gpu) {
		e.dev = of.Face.(*kinds)[device.OwnMemory]
	}
	done.MoveTo(&e.handle)
	return e, nil
}
