package cudaalloc

import (
	"context"
	"fmt"
	"time"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/keep"
)

// patience is how long an allocation waits while nothing is freed. A stream that is stuck
// must not make a program hang that allocates.
const patience = 2 * time.Second

// queueNap is the pause between two tries of an allocation while another one gives back. There
// may be many, which must not keep the driver busy with calls that it refuses.
const queueNap = 10 * time.Millisecond

// mostWaiting is how many frees and functions may wait, of any size: each of them takes memory of the
// process.
const mostWaiting = 1 << 16

// pushBack waits while more bytes than the limit, or too many frees, wait: a program that allocates and
// frees faster than the GPU works must be slowed down.
func (d *Device) pushBack(ctx context.Context, size int64) error {
	limit := d.limits.waiting.Load()
	enough := func() bool { return d.deferred.bytes.Load() <= limit && d.deferred.count.Load() <= mostWaiting }
	if enough() {
		return nil
	}
	err := d.waitForFrees(ctx, time.Now(), 0, func() bool {
		d.deferred.sweep(d.gpu)
		return enough()
	})
	if err != nil {
		why := fmt.Errorf("Limits.Waiting is %d bytes, and at most %d frees may wait: %w", limit, mostWaiting, err)
		return d.noMemory(size, why, OutOfMemory)
	}
	return nil
}

// reclaim retries an allocation for which the driver has no memory: after giving cached memory
// back, and as pending work that uses freed memory ends. One allocation at a time gives memory
// back; the others only retry now and then.
func (d *Device) reclaim(ctx context.Context, size int64, refused error, take func() error) error {
	started := time.Now()
	mine := false
	err := d.waitForFrees(ctx, started, queueNap, func() bool {
		select {
		case d.reclaiming <- struct{}{}:
			mine = true
			return true
		default:
		}
		refused = take()
		return !isOutOfMemory(refused)
	})
	if mine {
		defer func() { <-d.reclaiming }()
		refused, err = d.giveBackUntil(ctx, started, refused, take)
	}
	if err != nil {
		return d.noMemory(size, err, refused)
	}
	return refused
}

// giveBackUntil gives cached memory back until the allocation no longer fails for lack of memory,
// or no pending free is left. Only one goroutine calls it at a time.
func (d *Device) giveBackUntil(ctx context.Context, started time.Time, before error, take func() error,
) (refused, gaveUp error) {
	refused = before
	patient, cancel := context.WithTimeout(ctx, patience)
	if d.runTrims(patient) != nil { // one of them waits: there is more to give back than theirs
		started = time.Now()
	}
	cancel()
	if err := ctx.Err(); err != nil {
		return refused, err
	}
	// Memory that was freed in stream order is free once its stream got there.
	idle := d.mark()
	gaveUp = d.waitForFrees(ctx, started, 0, func() bool {
		d.deferred.sweep(d.gpu)
		// Not before it can be freed: other allocations may use it until then.
		ended := isClosed(idle) && d.deferred.count.Load() == 0
		if isClosed(idle) && d.keeps() {
			d.giveBackCached()
			idle, ended = d.mark(), false
		}
		if d.pool != 0 {
			_ = d.ctx.TrimPool(d.pool) // an error changes nothing: the allocation reports it
		}
		refused = take()
		return ended || !isOutOfMemory(refused)
	})
	return refused, gaveUp
}

// noMemory is the error of an allocation that waited in vain.
func (d *Device) noMemory(size int64, why, refused error) error {
	return fmt.Errorf("cuda: allocate %d bytes on %s: %d bytes that were freed wait for pending work of the GPU: %w: %w",
		size, d.ID(), d.deferred.bytes.Load(), why, refused)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// waitForFrees calls enough now and then, not before least has passed, until it returns true. It
// gives up when ctx is done, or when nothing was freed for too long since the allocation started.
func (d *Device) waitForFrees(ctx context.Context, started time.Time, least time.Duration, enough func() bool) error {
	pause := nap{least: least}
	for !enough() {
		if err := pause.sleep(ctx); err != nil {
			return err
		}
		if freed := d.deferred.freedAt(); time.Since(started) > patience && time.Since(freed) > patience {
			return errNothingFreed
		}
	}
	return nil
}

// giveBackCached gives cached memory back to the driver.
func (d *Device) giveBackCached() {
	for _, cache := range d.caches {
		if cache != nil {
			cache.Trim()
		}
	}
}

// Trim waits like [Device.Flush], and then gives the unused memory of pools and caches, and unused
// streams and events, back to the driver. ctx ends the wait with an error.
func (d *Device) Trim(ctx context.Context) error {
	if err := checkContext("trim", ctx); err != nil {
		return err
	}
	if err := d.Flush(ctx); err != nil { // blocks that are freed now go to lists and caches
		return err
	}
	if err := d.runTrims(ctx); err != nil {
		return fmt.Errorf("cuda: trim %s: %w", d.ctx, err)
	}
	failed := d.deferred.failedSince()
	d.giveBackCached()
	d.events.drain(d.gpu)
	d.endFree()
	if err := d.Flush(ctx); err != nil {
		return err
	}
	if err := failed(); err != nil {
		return err
	}
	if d.pool == 0 {
		return nil
	}
	// Memory that was freed in stream order is free once its stream got there.
	if err := d.idle(ctx); err != nil {
		return err
	}
	return d.ctx.TrimPool(d.pool)
}

// mark returns a channel that is closed when all work is done that the context has now, or
// when the context is gone.
func (g *gpu) mark() <-chan struct{} {
	return g.markWith(&deferral{end: func() error { return nil }})
}

func (g *gpu) markWith(one *deferral) <-chan struct{} {
	f := &flush{left: 1, done: make(chan struct{})}
	one.flushes = []*flush{f}
	g.deferred.add(g, one)
	return f.done
}

// idle waits until all work is done that the context has now. The program, which waits for it, learns that.
func (g *gpu) idle(ctx context.Context) error {
	one := new(deferral)
	one.key = keep.Key(uintptr(unsafe.Pointer(one)))
	one.end = func() error {
		if g.ctx.Watched() {
			g.ctx.Driver().Publish(one.key)
			g.ctx.Driver().Forget(one.key)
		}
		return nil
	}
	select {
	case <-g.markWith(one):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cuda: wait for all work of %s: %w", g.ctx, ctx.Err())
	}
}
