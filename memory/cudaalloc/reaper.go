package cudaalloc

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// reaper ends what work of unknown streams may still be using: it takes all that
// waits, synchronises the context once, and ends the whole batch. What comes in
// meanwhile is the next batch, so a burst costs a few synchronisations, however
// large it is. Its goroutine lives only while something waits.
type reaper struct {
	mu      sync.Mutex
	waiting []doomed
	awake   bool

	round sync.Mutex   // held while a batch is ended
	count atomic.Int64 // waiting, or in the batch that is being ended
	lost  atomic.Int64 // given up
}

// doomed is something to be ended, and how often that failed.
type doomed struct {
	end   func() error
	fails int
}

const maxFails = 3

// AfterWork calls f once all work is done that is on any stream of this GPU now,
// also on those that others made. It returns at once; f is called on a goroutine of
// the reaper and must not wait for the GPU or allocate on it.
func (d *Device) AfterWork(f func()) {
	d.reaper.later(d.gpu, func() error { f(); return nil })
}

// Flush ends all that waits for the work of the GPU, after that work: functions of
// [Device.AfterWork], memory that was freed. It does not wait when nothing waits.
func (d *Device) Flush(ctx context.Context) error { return d.reaper.flush(d.gpu) }

// Trim does what Flush does, and then gives back to the driver what pools,
// allocators and the free list of events only keep for later.
func (d *Device) Trim(ctx context.Context) error {
	if err := d.Flush(ctx); err != nil { // what ends now gives back to lists and caches
		return err
	}
	if err := d.ctx.Synchronize(); err != nil {
		return err
	}
	if err := d.staging.trim(d.gpu); err != nil {
		return err
	}
	d.caches.trim()
	d.cache.Trim()
	d.events.drain(d.gpu)
	if err := d.Flush(ctx); err != nil {
		return err
	}
	if d.pool == 0 {
		return nil
	}
	// Pool memory that was freed in stream order is free once the stream got there.
	if err := d.ctx.Synchronize(); err != nil {
		return err
	}
	return d.ctx.TrimPool(d.pool)
}

// later ends something after the GPU's work so far.
func (r *reaper) later(g *gpu, end func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count.Add(1)
	r.waiting = append(r.waiting, doomed{end: end})
	if !r.awake {
		r.awake = true
		go r.run(g)
	}
}

func (r *reaper) run(g *gpu) {
	for {
		r.mu.Lock()
		if len(r.waiting) == 0 {
			r.awake = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		_ = r.reap(g) // what failed waits again, or is counted as lost
	}
}

func (r *reaper) flush(g *gpu) error {
	var all error
	for range maxFails {
		if all = r.reap(g); all == nil {
			return nil
		}
	}
	return all
}

// reap ends one batch.
func (r *reaper) reap(g *gpu) error {
	r.round.Lock()
	defer r.round.Unlock()
	r.mu.Lock()
	batch := r.waiting
	r.waiting = nil
	r.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	// A context that cannot be synchronised runs nothing any more. Before that is
	// believed, it is asked again.
	var failed error
	for range maxFails {
		if failed = g.ctx.Synchronize(); failed == nil {
			break
		}
	}
	for _, d := range batch {
		err := d.end()
		if err == nil {
			r.count.Add(-1)
			continue
		}
		failed = errors.Join(failed, err)
		if d.fails++; d.fails == maxFails {
			r.count.Add(-1)
			r.lost.Add(1)
			continue
		}
		r.mu.Lock()
		r.waiting = append(r.waiting, d)
		r.mu.Unlock()
	}
	return failed
}
