package gpu

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/keep"
)

// Flush waits until everything that now waits for work of the GPU has ended.
func (d *Deferred) Flush(ctx context.Context) error {
	d.needed.Add(1)
	defer d.needed.Add(-1)
	// What ends may leave more behind: a block that a cache does not keep, a call of the driver that waits
	// for the GPU, a function that is called once memory is unregistered.
	// It may also fail before the next round asks for it.
	failed := d.failedSince()
	// mutant: for range 2 {
	for range 3 {
		if err := d.flush(ctx); err != nil {
			return err
		}
	}
	return failed()
}

// failedSince returns a function that returns the error of an item that ended since this call.
func (d *Deferred) failedSince() func() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	before := d.failures
	return func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.failures == before {
			return nil
		}
		return d.failure
	}
}

// flush waits for all items that had not ended when it began.
type flush struct {
	left int
	done chan struct{}
}

func (d *Deferred) flush(ctx context.Context) error {
	f := &flush{done: make(chan struct{})}
	d.mu.Lock()
	for one := range d.all {
		one.flushes = append(one.flushes, f)
		f.left++
	}
	left := f.left
	d.mu.Unlock()
	if left == 0 {
		return nil
	}
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return d.giveUp(ctx, f)
	}
}

func (d *Deferred) giveUp(ctx context.Context, f *flush) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for one := range d.all {
		for i, other := range one.flushes {
			if other == f {
				one.flushes = append(one.flushes[:i], one.flushes[i+1:]...)
				break
			}
		}
	}
	err := fmt.Errorf("cuda: wait for pending work of %s: %w", d.ctx, ctx.Err())
	if reason := d.reason(); reason != nil {
		err = fmt.Errorf("%w (%w)", err, reason)
	}
	return err
}

// mark returns a channel that is closed when all work is done that the context has now, or
// when the context is gone.
func (d *Deferred) mark() <-chan struct{} {
	return d.markWith(&Deferral{end: func() error { return nil }})
}

func (d *Deferred) markWith(one *Deferral) <-chan struct{} {
	f := &flush{left: 1, done: make(chan struct{})}
	one.flushes = []*flush{f}
	d.add(one)
	return f.done
}

// idle waits until all work is done that the context has now. The program, which waits for it, learns that.
func (d *Deferred) idle(ctx context.Context) error {
	one := new(Deferral)
	one.key = keep.Key(uintptr(unsafe.Pointer(one)))
	one.end = func() error {
		if d.ctx.Watched() {
			d.ctx.Driver().Publish(one.key)
			d.ctx.Driver().Forget(one.key)
		}
		return nil
	}
	select {
	case <-d.markWith(one):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cuda: wait for all work of %s: %w", d.ctx, ctx.Err())
	}
}
