package cudaalloc

import (
	"context"
	"errors"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/memcopy"
)

// PageLocked reports whether this package page-locked or registered the memory, for
// any GPU of the driver, or allocated it as managed memory.
func (d *Device) PageLocked(p device.Ptr, size int64) bool {
	return d.platform.locked.contain(p, size)
}

// Upload enqueues copies from host memory on s. Memory that is not page-locked goes
// through page-locked staging memory, which is filled before Upload returns: ranges that
// are neighbours at their destination are one copy, of up to 4 MiB. Where 64 MiB are
// staged on s and not copied yet, or 512 MiB on all streams, Upload waits for room until ctx
// is done. After an error, part of the copies may be enqueued.
//
// Page-locked and managed memory is copied in its turn on s, without staging, where neighbours are one
// copy, too. On a stream of [Device.CopyStream] that waits for nothing, page-locked ranges of less than
// 64 KiB go through staging memory with the others: no work on s can write them.
//
// The event that it returns is owned by the caller and complete when the copies are. The staging
// memory waits for it too, so it must not be recorded again.
func (d *Device) Upload(ctx context.Context, list []device.Range, s device.Stream) (device.Event, error) {
	if err := checkContext("upload", ctx); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cuda: upload to %s: %w", d.ID(), err)
	}
	of, stream, err := d.on(s)
	if err != nil {
		return nil, err
	}
	direct, staged, err := d.sort(list, isApart(s))
	if err != nil {
		return nil, err
	}
	gpu := d.gpuOf(s) // events are recorded in the context of their stream
	if d.kind == device.CUDAHost {
		return gpu.copyByHost(ctx, append(direct, staged...), stream)
	}
	if gpu != d.gpu && d.kind == device.CUDA {
		return d.uploadAcross(ctx, gpu, direct, staged, stream)
	}
	if err := of.Copy(direct, stream); err != nil {
		return nil, err
	}
	done, err := gpu.staging.copy(ctx, gpu, staged, stream)
	if err != nil {
		return nil, err
	}
	return done.event(), nil
}

// leastDirect is the size from which a page-locked range is worth a copy of its own: a call of the
// driver, and a transfer, which take as long as the CPU takes to copy some 30 to 60 KiB.
const leastDirect = 64 << 10

// sort divides the ranges into those that the GPU reads itself, and those that are staged. apart
// reports that page-locked memory may be read at once.
func (d *Device) sort(list []device.Range, apart bool) (direct, staged []device.Range, err error) {
	locked := &d.platform.locked
	locked.mu.RLock()
	defer locked.mu.RUnlock()
	staged = make([]device.Range, 0, len(list))
	var in span // the last one that was found: many ranges are in few
	for i, r := range list {
		known := r.Size > 0 && in.contains(r.Src, r.Size)
		if r.Size > 0 && !known {
			if s, ok := locked.at(r.Src, r.Size); ok {
				in, known = s, true
			}
		}
		switch {
		case r.Size < 0:
			return nil, nil, fmt.Errorf("cuda: upload to %s: ranges[%d].Size = %d: negative size", d.ID(), i, r.Size)
		case r.Size == 0:
		case r.Src < memcopy.FirstPage:
			return nil, nil, fmt.Errorf("cuda: upload to %s: ranges[%d].Src = %#x: memory that cannot be accessed", d.ID(), i, uintptr(r.Src))
		case d.kind == device.CUDAHost && r.Dst < memcopy.FirstPage:
			return nil, nil, fmt.Errorf("cuda: upload to %s: ranges[%d].Dst = %#x: memory that cannot be accessed", d.ID(), i, uintptr(r.Dst))
		case !known || apart && !in.managed && r.Size < leastDirect:
			staged = append(staged, r)
		default:
			direct = appendDirect(direct, r)
		}
	}
	return direct, staged, nil
}

// appendDirect appends a range, or extends the last one.
func appendDirect(list []device.Range, r device.Range) []device.Range {
	if i := len(list) - 1; i >= 0 {
		last := &list[i]
		if last.Src+device.Ptr(last.Size) == r.Src && last.Dst+device.Ptr(last.Size) == r.Dst {
			last.Size += r.Size
			return list
		}
	}
	return append(list, r)
}

// uploadAcross is Upload on a stream of another GPU, which need not reach d's memory.
func (d *Device) uploadAcross(ctx context.Context, gpu *gpu, direct, staged []device.Range, stream uintptr) (device.Event, error) {
	var done *sharedEvent
	err := gpu.detour(d.gpu, stream, func(own uintptr) (err error) {
		if err = d.ctx.Copy(direct, own); err == nil {
			done, err = d.staging.copy(ctx, d.gpu, staged, own)
		}
		return err
	})
	switch {
	case done == nil:
		return nil, err
	case err != nil:
		return nil, errors.Join(err, done.event().Close())
	}
	return done.event(), nil
}

// copyByHost copies between memory of the host, in its turn on the stream: the driver would
// do the same inside the call, and would not return when ctx ends.
func (g *gpu) copyByHost(ctx context.Context, list []device.Range, stream uintptr) (device.Event, error) {
	before, err := record(g, stream)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return before.event(), nil
	}
	defer before.letGo()
	if err := poll(ctx, func() (bool, error) { return before.reached(0) }); err != nil {
		return nil, fmt.Errorf("cuda: upload on %s: wait for the stream: %w", g.ctx, err)
	}
	// A reset of the primary context unmaps the destination.
	err = memcopy.Guard(func() error {
		for _, r := range list {
			if err := memcopy.Copy(uintptr(r.Dst), uintptr(r.Src), r.Size, ctx.Err); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cuda: upload on %s: %w", g.ctx, err)
	}
	done, err := record(g, stream)
	if err != nil {
		return nil, err
	}
	return done.event(), nil
}
