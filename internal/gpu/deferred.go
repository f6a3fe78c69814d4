package gpu

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/keep"
)

// Deferred holds actions that wait for pending work of a GPU.
//
// The evidence that the work is done is an event, where the streams are known: one
// goroutine queries all of them. Work on unknown streams needs the whole context: another
// goroutine synchronises it, once for all items that wait by then. A stream that is stuck
// holds up the items that wait for its events, and those that wait for the context; no
// others. A third goroutine makes the calls of the driver that wait for the GPU. All live only while items
// wait, and run no function of a caller.
type Deferred struct {
	ctx *cuda.Context
	// synchronize returns when the work is done that the context had at the call, or, with an
	// error, when the context is gone.
	synchronize func([]keep.Key) error
	guard       guard

	mu            sync.Mutex
	behindEvents  []*Deferral
	behindContext []*Deferral
	whenIdle      []*Deferral
	all           map[*Deferral]struct{} // that have not ended, those being ended too
	polling       bool
	synchronizing bool
	reaping       bool
	freed         time.Time // when memory was freed the last time
	failures      int       // items that ended with an error
	failure       error     // the last of them

	sweeping sync.Mutex // held while behindEvents is gone through

	count atomic.Int64 // that have not ended
	bytes atomic.Int64 // of memory that they free
	lost  atomic.Int64 // given up
	// needed counts callers that wait for memory, or for all that waits to end.
	needed atomic.Int64
	ending atomic.Bool // the GPU was idle, and an item that waited for that is being ended

	reason func() error // why the context could not be synchronised the last time
}

// maxFails is how often the driver may fail to end something.
const maxFails = 3

// later ends something after all work that the context has now.
func (d *Deferred) later(end func() error) { d.add(&Deferral{end: end}) }

// add has an item wait for its evidence.
func (d *Deferred) add(one *Deferral) {
	one.giveBack(d.ctx)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note(one)
	d.enqueue(one)
}

// whenReached ends an item when there is evidence that its work is done: on this goroutine, if there is
// already.
func (d *Deferred) whenReached(one *Deferral, after Evidence) {
	if done, err := after.reached(one.key); done && err == nil {
		after.letGo()
		one.run(d.ctx, &d.guard, func() {})
		return
	}
	one.after = after
	d.add(one)
}

// call calls a function of a caller that need not wait for any work.
func (d *Deferred) call(f func()) {
	one := &Deferral{call: f}
	one.giveBack(d.ctx)
	d.mu.Lock()
	d.note(one)
	d.mu.Unlock()
	d.finish(one, nil)
}

// note counts an item that has not ended. The caller holds d.mu.
func (d *Deferred) note(one *Deferral) {
	if d.all == nil {
		d.all = map[*Deferral]struct{}{}
	}
	d.all[one] = struct{}{}
	d.count.Add(1)
	d.bytes.Add(one.bytes)
}

// enqueue starts the goroutine that waits for the evidence. The caller holds d.mu.
func (d *Deferred) enqueue(list ...*Deferral) {
	for _, one := range list {
		switch {
		case one.after != nil:
			d.behindEvents = append(d.behindEvents, one)
		case one.idle:
			d.whenIdle = append(d.whenIdle, one)
		default:
			d.behindContext = append(d.behindContext, one)
		}
	}
	if len(d.whenIdle) > 0 && !d.reaping {
		d.reaping = true
		go d.reap()
	}
	if len(d.behindEvents) > 0 && !d.polling {
		d.polling = true
		go d.poll()
	}
	if len(d.behindContext) > 0 && !d.synchronizing {
		d.synchronizing = true
		go d.drain()
	}
}

// poll queries the events until none is left.
func (d *Deferred) poll() {
	var pause backoff
	for {
		started := time.Now()
		if d.sweep() {
			pause.since = time.Time{}
		}
		d.mu.Lock()
		if len(d.behindEvents) == 0 {
			d.polling = false
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		pause.least = min(4*time.Since(started), 100*time.Millisecond) // many events are queried less often
		_ = pause.sleep(context.Background())
	}
}

// sweep ends the items whose events are complete, and reports whether there were any. It does
// nothing while another goroutine sweeps.
func (d *Deferred) sweep() (any bool) {
	if !d.sweeping.TryLock() {
		return false
	}
	defer d.sweeping.Unlock()
	return d.sweepAll()
}

// sweepAll is sweep for the goroutine that holds d.sweeping.
func (d *Deferred) sweepAll() (any bool) {
	d.mu.Lock()
	list := d.behindEvents
	d.behindEvents = nil
	d.mu.Unlock()
	pending := list[:0]
	var unknown []*Deferral
	for _, one := range list {
		done, err := one.after.reached(one.key)
		switch {
		// mutant: case done || err != nil:
		case done || isGone(err):
			one.after.letGo()
			d.finish(one, err)
			any = true
		case err == nil || isCapture(err) && !errors.Is(err, cuda.CapturedEvent): // which never completes
			pending = append(pending, one)
		default:
			if one.fails++; one.fails < maxFails {
				pending = append(pending, one)
				continue
			}
			one.after.letGo() // it proves nothing: only the end of all work does
			one.after, one.fails = nil, 0
			unknown = append(unknown, one)
		}
	}
	clear(list[len(pending):])
	d.mu.Lock()
	defer d.mu.Unlock()
	pending = append(pending, d.behindEvents...)
	d.behindEvents = nil
	d.enqueue(pending...)
	d.enqueue(unknown...)
	return any
}

// drain synchronises the context for all items that wait for it, until none does.
func (d *Deferred) drain() {
	for {
		d.mu.Lock()
		batch := d.behindContext
		d.behindContext = nil
		if len(batch) == 0 {
			d.synchronizing = false
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		gone := d.synchronize(keysOf(batch))
		for _, one := range batch {
			d.finish(one, gone)
		}
	}
}

// finish ends an item whose evidence is complete: its work is done, or the context is gone. Of an item
// that waits for several GPUs, the last one ends it.
func (d *Deferred) finish(one *Deferral, gone error) {
	if one.elsewhere.Add(-1) >= 0 {
		return
	}
	if one.call != nil {
		// mutant: one.run(d.ctx, &d.guard, func() { d.ended(one, gone) })
		calls.run(func() { one.run(d.ctx, &d.guard, func() { d.ended(one, gone) }) })
		return
	}
	err := one.endMemory(d.ctx)
	switch {
	case err == nil:
		d.ended(one, gone)
		return
	case isCapture(err): // no failure: it is tried again
	default:
		one.fails++
	}
	if one.fails >= maxFails {
		d.lost.Add(1)
		d.ended(one, err)
		return
	}
	one.after = nil
	d.mu.Lock()
	defer d.mu.Unlock()
	d.enqueue(one)
}

func (d *Deferred) ended(one *Deferral, err error) {
	d.count.Add(-1)
	d.bytes.Add(-one.bytes)
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.all, one)
	if one.bytes > 0 {
		d.freed = time.Now()
	}
	if err != nil {
		d.failures++
		d.failure = err
	}
	for _, f := range one.flushes {
		if f.left--; f.left == 0 {
			close(f.done)
		}
	}
}

// freedAt is when memory was freed the last time.
func (d *Deferred) freedAt() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.freed
}

// CountWaiting adds bytes to those of memory that waits to be freed. Taking some away counts as a free.
func (d *Deferred) CountWaiting(bytes int64) {
	d.bytes.Add(bytes)
	if bytes <= 0 {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.freed = time.Now()
	}
}

// Waiting returns how many items have not ended, and the bytes of memory that they free.
func (d *Deferred) Waiting() (items, bytes int64) { return d.count.Load(), d.bytes.Load() }

// Lost returns how many items were given up, because the driver has failed three times to end them.
func (d *Deferred) Lost() int64 { return d.lost.Load() }

// Panics returns how many functions of callers did not return.
func (d *Deferred) Panics() int64 { return d.guard.panics.Load() }
