package cudaalloc

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// streamList keeps the streams of a GPU that this package made: those that are alive, which
// are asked whether they capture, and those that copies may use again.
type streamList struct {
	mu       sync.Mutex
	alive    map[uintptr]struct{}
	free     []uintptr    // whose work may be pending, the one longest on the list first
	asking   bool         // a query about the live streams is under way
	answered atomic.Int32 // 1: it has been
	ending   []func()     // that end streams afterwards
}

const (
	maxFreeStreams = 32
	triedStreams   = 4 // before a new one is made
)

// owned makes an owned Stream of a stream that end gives back to the driver.
func (d *Device) owned(word uintptr, end func() error) *Stream {
	l := &d.streams
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.alive == nil {
		l.alive = map[uintptr]struct{}{}
	}
	l.alive[word] = struct{}{}
	return &Stream{handle: handle{gpu: d.gpu, kind: "stream", word: word, end: func() error { return d.gpu.endStream(word, end) }}}
}

// endStream ends a stream once no query uses it.
func (g *gpu) endStream(word uintptr, end func() error) error {
	l := &g.streams
	l.mu.Lock()
	delete(l.alive, word)
	if l.asking && l.answered.Load() == 0 {
		l.ending = append(l.ending, func() {
			if end() != nil {
				g.deferred.later(g, end)
			}
		})
		l.mu.Unlock()
		return nil
	}
	l.mu.Unlock()
	return end()
}

// CopyStream returns an owned stream for a copy for which the caller names none; the caller
// closes it once the copy is enqueued. It is not ordered with other streams, and nothing else is
// enqueued on it until it is closed: a copy that waits for an event delays no other copy. It is a
// closed one without pending work, or a new one.
func (d *Device) CopyStream() (device.Stream, error) {
	word, err := d.idleStream()
	if err != nil {
		return nil, err
	}
	if word == 0 {
		if word, err = d.ctx.NewStream(0); err != nil {
			return nil, err
		}
	}
	s := d.owned(word, func() error { return d.giveBack(word) })
	s.apart.Store(true)
	return s, nil
}

// idleStream takes a stream without pending work off the list, or returns 0.
func (d *Device) idleStream() (uintptr, error) {
	l := &d.streams
	for range triedStreams {
		l.mu.Lock()
		if len(l.free) == 0 {
			l.mu.Unlock()
			return 0, nil
		}
		word := l.free[0]
		l.free = slices.Delete(l.free, 0, 1)
		l.mu.Unlock()
		done, err := d.ctx.QueryStreamFor(word, 0)
		if done && err == nil {
			d.ctx.HandOut(device.Ptr(word), 0)
			return word, nil
		}
		l.mu.Lock()
		l.free = append(l.free, word)
		l.mu.Unlock()
		if err != nil {
			return 0, err
		}
	}
	return 0, nil
}

// giveBack puts a stream on the list, or ends it.
func (d *Device) giveBack(word uintptr) error {
	l := &d.streams
	l.mu.Lock()
	kept := len(l.free) < maxFreeStreams
	if kept {
		d.ctx.Keep(device.Ptr(word), 0)
		l.free = append(l.free, word)
	}
	l.mu.Unlock()
	if kept {
		return nil
	}
	return d.ctx.FreeStream(word)
}

// endFree ends the streams on the list.
func (g *gpu) endFree() {
	g.streams.mu.Lock()
	free := g.streams.free
	g.streams.free = nil
	g.streams.mu.Unlock()
	for _, word := range free {
		if g.ctx.FreeStream(word) != nil {
			g.deferred.later(g, func() error { return g.ctx.FreeStream(word) })
		}
	}
}

// synchronizeUncaptured synchronises the context unless the driver reports a capture that this
// would invalidate, and reports whether it did. One goroutine calls it at a time.
func (g *gpu) synchronizeUncaptured(keys []cuda.Key) (done bool, err error) {
	done, err = g.ctx.SynchronizeFor(g.streams.ask(), &g.streams.answered, keys)
	g.streams.asked()
	return done, err
}

// ask returns the streams that are alive, and keeps them alive until answered is 1, or asked is
// called.
func (l *streamList) ask() []uintptr {
	l.mu.Lock()
	defer l.mu.Unlock()
	words := make([]uintptr, 0, len(l.alive))
	for word := range l.alive {
		words = append(words, word)
	}
	l.asking = true
	l.answered.Store(0)
	return words
}

// asked ends the streams that were closed during the query.
func (l *streamList) asked() {
	l.mu.Lock()
	ending := l.ending
	l.asking, l.ending = false, nil
	l.mu.Unlock()
	for _, end := range ending {
		end()
	}
}

// HoldSynchronization prevents this package from synchronising the context of the GPU until
// release is called. It waits for a synchronisation that is under way; ctx ends that wait with
// an error, and release is nil then. Several holds may exist at a time.
//
// It is for programs that capture streams (CUDA graphs) of other libraries that are
// CU_STREAM_NON_BLOCKING: the driver does not report such captures, and a synchronisation
// invalidates them. Captures of streams of this package, and of all streams that are ordered
// with the legacy default stream, are visible, but only a hold prevents a
// synchronisation that starts just as a capture begins.
//
// Until release, functions of [Device.AfterWork] are not called, memory that was exported and
// released stays allocated, and [Device.Flush], [Device.Trim] and [Device.UnregisterHost] wait
// if anything needs the context.
func (d *Device) HoldSynchronization(ctx context.Context) (release func(), err error) {
	if err := checkContext("hold synchronisation", ctx); err != nil {
		return nil, err
	}
	d.holds.Add(1)
	release = sync.OnceFunc(func() { d.holds.Add(-1) })
	select {
	case d.synchronizing <- struct{}{}:
		<-d.synchronizing
		return release, nil
	case <-ctx.Done():
		release()
		return nil, fmt.Errorf("cuda: hold synchronisation of %s: %w", d.ctx, ctx.Err())
	}
}
