package gpu

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// Backlog counts the work that this module has enqueued on each stream and that may be pending. A stream takes a
// certain amount of pending work: the next call that enqueues work on it blocks in the driver, where no
// context ends it, and keeps a thread. Calls that have a context wait here for room instead. The others are
// counted, and never wait here.
//
// The driver is asked only now and then. Where a quarter of what a stream takes was enqueued and the stream is not idle, an
// event is recorded behind that work: a mark.
type Backlog struct {
	ctx    *cuda.Context
	events *Events

	mu      sync.Mutex
	streams map[uintptr]*lane
	calls   uint64 // that have enqueued work
}

// An H200 with CUDA 13.0 took 1,022 fills in one stream, or 55 copies of 64 bytes of page-locked memory with a record
// behind each: a copy counts as so many calls. Calls that wait leave half of the room to others, and to work of
// other libraries.
const (
	streamTakes = 1022
	callCost    = 1
	copyCost    = streamTakes / 55
	callRoom    = streamTakes / 2
	markedCost  = streamTakes / 4
)

// lane is the work on one stream.
type lane struct {
	calling int    // cost of calls that have not returned, and of marks that are being made or queried
	behind  int    // cost of the work behind the last mark
	last    uint64 // of b.calls
	marks   []mark // the oldest first, unless several goroutines query them
	gone    bool   // the count has ended: no mark is kept
}

// mark is an event behind work on a stream.
type mark struct {
	event uintptr
	cost  int // of the work between the mark before it and this one
}

func (l *lane) cost() int {
	cost := l.calling + l.behind
	for _, m := range l.marks {
		cost += m.cost
	}
	return cost
}

// admission is how calls are admitted to a stream: the zero value counts them, and never waits.
type admission struct{ ctx context.Context }

// waitingFor is the admission that waits until the stream has room, or ctx is done.
func waitingFor(ctx context.Context) admission { return admission{ctx} }

// AwaitRoom waits until a stream has room for calls that have no context, or ctx is done. Where there is room, it returns at
// once, even if ctx is done.
func (b *Backlog) AwaitRoom(ctx context.Context, stream uintptr) error {
	return waitingFor(ctx).enqueue(b, stream, 0, func() error { return nil })
}

// enqueue calls call, which enqueues work of a cost on a stream.
func (a admission) enqueue(b *Backlog, stream uintptr, cost int, call func() error) error {
	if err := b.mark(stream); err != nil {
		return err
	}
	room := math.MaxInt
	if a.ctx != nil {
		room = callRoom
	}
	l := b.begin(stream, cost, room)
	if l == nil {
		var err error
		if l, err = b.wait(a.ctx, stream, cost); err != nil {
			return err
		}
	}
	err := call()
	b.mu.Lock()
	defer b.mu.Unlock()
	l.calling -= cost
	if err == nil {
		l.behind += cost
		b.calls++
		l.last = b.calls
	}
	return err
}

// copies enqueues copies by calls of call; if it may wait, in pieces for which there is room on a stream that is not full.
func (a admission) copies(b *Backlog, ranges []device.Range, stream uintptr, call func([]device.Range) error) error {
	piece := len(ranges)
	if a.ctx != nil {
		piece = markedCost / copyCost
	}
	for len(ranges) > 0 {
		n := min(piece, len(ranges))
		if err := a.enqueue(b, stream, n*copyCost, func() error { return call(ranges[:n]) }); err != nil {
			return err
		}
		ranges = ranges[n:]
	}
	return nil
}

// begin counts a call, and returns the lane of the stream; nil if the cost of all work on it would exceed room.
func (b *Backlog) begin(stream uintptr, cost, room int) *lane {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.lane(stream)
	if l.cost() > room-cost {
		return nil
	}
	l.calling += cost
	return l
}

// wait is begin that waits for room.
func (b *Backlog) wait(ctx context.Context, stream uintptr, cost int) (l *lane, err error) {
	err = poll(ctx, func() (bool, error) {
		for b.reach(stream) {
		}
		if err := b.mark(stream); err != nil {
			return false, err
		}
		l = b.begin(stream, cost, callRoom)
		return l != nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("cuda: wait for room on stream %#x of %s: %w", stream, b.ctx, err)
	}
	return l, nil
}

// lane is the work on a stream. That of the per-thread stream, which is another one on each thread, is not kept. The
// caller holds b.mu.
func (b *Backlog) lane(stream uintptr) *lane {
	switch stream {
	case 0:
		stream = cuda.LegacyStream
	case cuda.PerThreadStream:
		return new(lane)
	}
	l := b.streams[stream]
	if l == nil {
		if b.streams == nil {
			b.streams = map[uintptr]*lane{}
		}
		l = new(lane)
		b.streams[stream] = l
	}
	return l
}

// mark marks the end of the work on the stream, if there is enough since the last mark.
func (b *Backlog) mark(stream uintptr) error {
	b.mu.Lock()
	l := b.lane(stream)
	m := mark{cost: l.behind}
	if m.cost < markedCost {
		b.mu.Unlock()
		return nil
	}
	l.behind, l.calling = 0, l.calling+m.cost
	b.mu.Unlock()
	for b.reach(stream) {
	}
	pending, err := b.pending(stream)
	if pending && err == nil {
		m.event, err = b.events.recordWord(stream)
	}
	b.settle(l, m, m.event != 0, true)
	if err != nil && isCapture(err) { // one that has begun just now
		return nil
	}
	return err
}

// settle ends the making or the query of a mark: it is pending, or counts no more.
func (b *Backlog) settle(l *lane, m mark, pending, newest bool) {
	b.mu.Lock()
	l.calling -= m.cost
	pending = pending && !l.gone
	if pending {
		at := 0
		if newest {
			at = len(l.marks)
		}
		l.marks = slices.Insert(l.marks, at, m)
	}
	b.mu.Unlock()
	if !pending && m.event != 0 {
		b.events.release(m.event)
	}
}

// pending reports whether a stream has work. Work that a stream captures is not pending, and an event behind it never
// completes.
func (b *Backlog) pending(stream uintptr) (bool, error) {
	if busy, err := b.ctx.Capturing([]uintptr{stream}); busy || err != nil {
		return false, nil
	}
	done, err := b.ctx.QueryStreamFor(stream, 0)
	return !done && err == nil, err
}

// reach removes a mark of the stream if its work is done, and reports whether it is.
func (b *Backlog) reach(stream uintptr) bool {
	b.mu.Lock()
	l := b.lane(stream)
	if len(l.marks) == 0 {
		b.mu.Unlock()
		return false
	}
	m := l.marks[0]
	l.marks = slices.Delete(l.marks, 0, 1)
	l.calling += m.cost // until it is known
	b.mu.Unlock()
	done, err := b.ctx.QueryEventFor(m.event, 0)
	pending := !done && err == nil
	b.settle(l, m, pending, false)
	return !pending
}

// forget ends the count for a stream that has ended, or that has no pending work.
func (b *Backlog) forget(stream uintptr) {
	b.mu.Lock()
	l := b.lane(stream)
	delete(b.streams, stream)
	marks := l.marks
	l.marks, l.gone = nil, true
	b.mu.Unlock()
	for _, m := range marks {
		b.events.release(m.event)
	}
}

// Trim releases the events of work that is done, and ends the count for streams without others. The caller calls done when
// all work is done that was enqueued before Trim: it ends the count for streams that have none since.
func (b *Backlog) Trim() (done func()) {
	b.mu.Lock()
	streams, before := slices.Collect(maps.Keys(b.streams)), b.calls
	b.mu.Unlock()
	for _, stream := range streams {
		for b.reach(stream) {
		}
	}
	b.drop(func(l *lane) bool { return l.behind == 0 })
	return func() { b.drop(func(l *lane) bool { return l.last <= before }) }
}

// drop ends the count for streams without calls and marks for which the work behind them is done.
func (b *Backlog) drop(done func(*lane) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.streams, func(_ uintptr, l *lane) bool { return l.calling == 0 && len(l.marks) == 0 && done(l) })
}
