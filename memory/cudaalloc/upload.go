package cudaalloc

import (
	"context"
	"errors"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
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
	var direct, staged []device.Range
	for i, r := range list {
		switch {
		case r.Size < 0:
			err = fmt.Errorf("cuda: upload to %s: ranges[%d].Size = %d: negative size", d.ID(), i, r.Size)
		case r.Size == 0:
		case d.PageLocked(r.Src, r.Size):
			direct = append(direct, r)
		default:
			staged = append(staged, r)
		}
	}
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
	if err := poll(ctx, before.reached); err != nil {
		return nil, fmt.Errorf("cuda: upload on %s: wait for the stream: %w", g.ctx, err)
	}
	for _, r := range list {
		if err := copyRange(ctx, r); err != nil {
			return nil, fmt.Errorf("cuda: upload on %s: %w", g.ctx, err)
		}
	}
	done, err := record(g, stream)
	if err != nil {
		return nil, err
	}
	return done.event(), nil
}

// copyRange copies memory of the host, until ctx is done.
func copyRange(ctx context.Context, r device.Range) error {
	for ; r.Size > stagingCopy; r = (device.Range{Dst: r.Dst + stagingCopy, Src: r.Src + stagingCopy, Size: r.Size - stagingCopy}) {
		copyPieces(r.Dst, r.Src, stagingCopy)
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	copyPieces(r.Dst, r.Src, r.Size)
	return nil
}
