package cudaalloc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/keep"
)

// deferred holds items that end only after pending work: memory that is freed or given back to a
// cache, functions of callers, and handles and memory that the driver has failed to end.
//
// The evidence that the work is done is an event, where the streams are known: one
// goroutine queries all of them. Work on unknown streams needs the whole context: another
// goroutine synchronises it, once for all items that wait by then. A stream that is stuck
// holds up the items that wait for its events, and those that wait for the context; no
// others. Both goroutines live only while items wait, and run no function of a caller.
type deferred struct {
	mu            sync.Mutex
	behindEvents  []*deferral
	behindContext []*deferral
	all           map[*deferral]struct{} // that have not ended, those being ended too
	polling       bool
	synchronizing bool
	reason        error     // why the context could not be synchronised the last time
	freed         time.Time // when memory was freed the last time
	failures      int       // items that ended with an error
	failure       error     // the last of them

	sweeping sync.Mutex // held while behindEvents is gone through

	count atomic.Int64 // that have not ended
	bytes atomic.Int64 // of memory that they free
	lost  atomic.Int64 // given up
}

// deferral is one of them.
type deferral struct {
	after  evidence // nil: all work of the context
	key    keep.Key // of the memory that it frees, for a simulated driver; 0: none
	bytes  int64    // of memory that it frees
	end    func() error
	call   func()      // a function of a caller, instead of end
	unseen bool        // call is a function of this module, by which the program learns nothing
	known  *keep.Known // that it acts on, too, or nil
	fails  int
	// elsewhere counts the other GPUs whose work it waits for, too, and which have not answered.
	elsewhere atomic.Int32

	flushes []*flush
}

// evidence reports when work is done, and is released then.
type evidence interface {
	reached(keep.Key) (bool, error)
	letGo()
}

// maxFails is how often the driver may fail to end something.
const maxFails = 3

// AfterWork calls f after all work already enqueued on any stream of this GPU, including
// streams of other libraries, has completed, and that of all other GPUs of the driver that are
// open: a copy on one of them may read memory of this GPU. It returns at once; f is called on a
// goroutine of this package and may block: neither frees nor other functions wait for it. A panic
// of f is logged, and counted in [Stats]. For the work of one stream, there is [Stream.AfterWork].
//
// For that the whole context is synchronised, on another goroutine, and not while a capture of a
// stream (CUDA graphs) is visible; see [Device.HoldSynchronization]. If the context is gone, and its
// work with it, f is called then.
//
// A nil f panics.
func (d *Device) AfterWork(f func()) {
	if f == nil {
		panic(absent("AfterWork", "f", "a function"))
	}
	d.afterWork(&deferral{call: f})
}

func init() {
	keep.SetWaits(func(of any, known *keep.Known, f func()) bool {
		one := &deferral{call: f, unseen: true, known: known}
		switch of := of.(type) {
		case *Device:
			of.afterWork(one)
		case *Stream:
			of.afterWork(one)
		case *Event:
			of.onComplete(one)
		default:
			return false
		}
		return true
	})
}

func (d *Device) afterWork(one *deferral) {
	others := d.platform.others(d.gpu)
	one.elsewhere.Store(int32(len(others)))
	d.deferred.add(d.gpu, one)
	for _, other := range others {
		other.deferred.add(other, &deferral{key: one.key, end: func() error {
			d.deferred.finish(d.gpu, one, nil)
			return nil
		}})
	}
}

// Flush waits until everything that now waits for work of the GPU has ended: functions of
// [Device.AfterWork] and [Event.OnComplete] have returned, memory is freed. It returns at once if
// nothing waits. ctx ends the wait with an error, which also wraps the driver's where the
// context could not be synchronised. Memory and handles that the driver failed to end meanwhile
// are an error, too.
//
// A function of AfterWork or OnComplete must not call it without an end of ctx: it would wait
// for itself.
func (d *Device) Flush(ctx context.Context) error {
	if err := checkContext("flush", ctx); err != nil {
		return err
	}
	// What ends may leave more behind: a block that a cache does not keep, a call of the driver that waits
	// for the GPU, a function of RegisterMemory.
	// It may also fail before the next round asks for it.
	failed := d.deferred.failedSince()
	for range 3 {
		if err := d.deferred.flush(ctx, d.gpu); err != nil {
			return err
		}
	}
	return failed()
}

// later ends something after all work that the context has now.
func (d *deferred) later(g *gpu, end func() error) { d.add(g, &deferral{end: end}) }

func (d *deferred) add(g *gpu, one *deferral) {
	one.giveBack(g)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.note(one)
	d.enqueue(g, one)
}

// call calls a function of a caller that need not wait for any work.
func (d *deferred) call(g *gpu, f func()) {
	one := &deferral{call: f}
	one.giveBack(g)
	d.mu.Lock()
	d.note(one)
	d.mu.Unlock()
	d.finish(g, one, nil)
}

// giveBack tells a simulated driver what the program knows now: nothing that is asked for the item later is
// known to it, before the function is called that the item is for.
func (one *deferral) giveBack(g *gpu) {
	if !g.ctx.Watched() {
		return
	}
	switch {
	case one.known != nil:
		one.key = one.known.Add(g.ctx.Driver())
	case one.call != nil:
		one.key = keep.Key(uintptr(unsafe.Pointer(one)))
	}
	if one.key == 0 {
		return
	}
	g.ctx.GiveBack(one.key)
	if one.after == nil {
		g.ctx.Cover(one.key)
	}
}

// run calls the function, whose work is done, and done however it ends.
func (one *deferral) run(g *gpu, done func()) {
	g.guard(func() {
		if one.key == 0 {
			one.call()
			return
		}
		driver := g.ctx.Driver()
		if !one.unseen {
			driver.Publish(one.key)
		}
		if one.known == nil {
			defer driver.Forget(one.key)
		}
		keep.Act(driver, one.key, one.call)
	}, done)
}

// endMemory calls end, which acts on what was asked for the memory.
func (one *deferral) endMemory(g *gpu) (err error) {
	if one.key == 0 || !g.ctx.Watched() {
		return one.end()
	}
	keep.Act(g.ctx.Driver(), one.key, func() { err = one.end() })
	return err
}

// note counts an item that has not ended. The caller holds d.mu.
func (d *deferred) note(one *deferral) {
	if d.all == nil {
		d.all = map[*deferral]struct{}{}
	}
	d.all[one] = struct{}{}
	d.count.Add(1)
	d.bytes.Add(one.bytes)
}

// enqueue starts the goroutine that waits for the evidence. The caller holds d.mu.
func (d *deferred) enqueue(g *gpu, list ...*deferral) {
	for _, one := range list {
		if one.after != nil {
			d.behindEvents = append(d.behindEvents, one)
		} else {
			d.behindContext = append(d.behindContext, one)
		}
	}
	if len(d.behindEvents) > 0 && !d.polling {
		d.polling = true
		go d.poll(g)
	}
	if len(d.behindContext) > 0 && !d.synchronizing {
		d.synchronizing = true
		go d.drain(g)
	}
}

// poll queries the events until none is left.
func (d *deferred) poll(g *gpu) {
	var pause nap
	for {
		started := time.Now()
		if d.sweep(g) {
			pause.since = time.Time{}
		}
		d.mu.Lock()
		if len(d.behindEvents) == 0 {
			d.polling = false
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		pause.least = 4 * time.Since(started) // many events are queried less often
		_ = pause.sleep(context.Background())
	}
}

// sweep ends the items whose events are complete, and reports whether there were any. It does
// nothing while another goroutine sweeps.
func (d *deferred) sweep(g *gpu) (any bool) {
	if !d.sweeping.TryLock() {
		return false
	}
	defer d.sweeping.Unlock()
	d.mu.Lock()
	list := d.behindEvents
	d.behindEvents = nil
	d.mu.Unlock()
	pending := list[:0]
	var unknown []*deferral
	for _, one := range list {
		done, err := one.after.reached(one.key)
		switch {
		case done || isGone(err):
			one.after.letGo()
			d.finish(g, one, err)
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
	d.enqueue(g, pending...)
	d.enqueue(g, unknown...)
	return any
}

// drain synchronises the context for all items that wait for it, until none does.
func (d *deferred) drain(g *gpu) {
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
		gone := g.synchronize(keysOf(batch))
		for _, one := range batch {
			d.finish(g, one, gone)
		}
	}
}

func keysOf(batch []*deferral) (keys []keep.Key) {
	for _, one := range batch {
		if one.key != 0 {
			keys = append(keys, one.key)
		}
	}
	return keys
}

// synchronize returns when the work is done that the context had at the call, or, with an
// error, when the context is gone. It waits while a capture is visible, which synchronising
// would invalidate.
func (g *gpu) synchronize(keys []keep.Key) error {
	const shortest, longest = time.Millisecond, 100 * time.Millisecond
	gone := false
	for pause := shortest; ; pause = min(2*pause, longest) {
		done, err := g.trySynchronize(keys)
		if done && (err == nil || gone && isGone(err)) {
			return err
		}
		// Ask the driver again before treating all work as ended.
		if gone = isGone(err); !gone {
			time.Sleep(pause)
		}
	}
}

// trySynchronize synchronises the context, unless that is held or would hurt a capture.
func (g *gpu) trySynchronize(keys []keep.Key) (done bool, err error) {
	g.synchronizing <- struct{}{}
	defer func() { <-g.synchronizing }()
	if g.holds.Load() > 0 {
		return false, nil
	}
	// After a reset another library may have activated the context again: memory of the new context
	// must not be freed.
	if g.gone() {
		return true, g.ctx.Err()
	}
	done, err = g.synchronizeUncaptured(keys)
	g.deferred.mu.Lock()
	defer g.deferred.mu.Unlock()
	g.deferred.reason = err
	return done, err
}

// finish ends an item whose evidence is complete: its work is done, or the context is gone. Of an item
// that waits for several GPUs, the last one ends it.
func (d *deferred) finish(g *gpu, one *deferral, gone error) {
	if one.elsewhere.Add(-1) >= 0 {
		return
	}
	if one.call != nil {
		calls.run(func() { one.run(g, func() { d.ended(one, gone) }) })
		return
	}
	err := one.endMemory(g)
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
	d.enqueue(g, one)
}

func (d *deferred) ended(one *deferral, err error) {
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

// failedSince returns a function that returns the error of an item that ended since this call.
func (d *deferred) failedSince() func() error {
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

// freedAt is when memory was freed the last time.
func (d *deferred) freedAt() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.freed
}

// flush waits for all items that had not ended when it began.
type flush struct {
	left int
	done chan struct{}
}

func (d *deferred) flush(ctx context.Context, g *gpu) error {
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
		return d.giveUp(ctx, g, f)
	}
}

func (d *deferred) giveUp(ctx context.Context, g *gpu, f *flush) error {
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
	err := fmt.Errorf("cuda: wait for pending work of %s: %w", g.ctx, ctx.Err())
	if d.reason != nil {
		err = fmt.Errorf("%w (%w)", err, d.reason)
	}
	return err
}

// isCapture reports whether the driver refused a call because a stream is being captured.
func isCapture(err error) bool {
	var code cuda.Code
	return errors.As(err, &code) && code.Capture()
}

// isGone reports whether the error means that the context is gone, and its work with it.
func isGone(err error) bool {
	var code cuda.Code
	return errors.As(err, &code) && code.ContextGone()
}
