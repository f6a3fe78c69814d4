package tree

import (
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/keep"
	"github.com/arrowdevice/arrowdevice/internal/live"
)

// Lanes let goroutines export one batch at the same time. The count of references to an owner, and its spare block, are
// words that all of them change: each waits for the other processors' cache lines, which takes longer than the rest of an
// export. An owner whose exports meet gets lanes: each has a count and a spare block of its own, and a goroutine takes the
// lane that its stack selects. The lanes close with the last reference to the owner; the memory ends when the last of
// them, and of the owner's own exports, has ended.

// Held is a reference to an owner, of its count or of a lane.
type Held struct {
	Owner *Owner
	lane  *lane // that holds it in place of the owner's count; nil: none
}

// lane is a part of the references to an owner, and of its exports.
type lane struct {
	owner   *Owner
	held    atomic.Int64                   // uses, and laneClosed
	exports atomic.Pointer[bridge.Exports] // nil until the first export; set under the owner's lock
	_       [128 - 24]byte                 // processors fetch cache lines in pairs
}

const laneClosed = 1 << 62

const laneBits = 6

// lanes are those of one owner.
type lanes struct {
	all  [1 << laneBits]lane
	left atomic.Int32 // those that have not ended, and one for the owner's own exports
}

// meetings is how often exports of an owner change its count at the same time before it gets lanes: those take 8 KiB, and a block
// for each goroutine.
const meetings = 8

// Hold adds a reference in a life of the owner, and reports whether there was one. Until it is released, others' last Release
// does not end the memory.
func (m *Owner) Hold(life uint32) (h Held, ok bool) {
	h.Owner = m
	if all := m.lanes.Load(); all != nil {
		h.lane = &all.all[live.Near(laneBits)]
		if !h.lane.enter() {
			return h, false
		}
		if m.refs.Number() != life { // of a life before this one, which the use of the lane keeps from ending
			h.lane.leave()
			return h, false
		}
		return h, true
	}
	ok, met := m.refs.TryRetain(life)
	if ok && met && m.exports.Load() != nil && m.met.Add(1) == meetings {
		m.makeLanes()
	}
	return h, ok
}

// Release drops the reference, as Owner.Release does.
func (h Held) Release() {
	if h.lane == nil {
		h.Owner.Release()
		return
	}
	if keep.Watched() {
		h.Owner.known.GiveBack(h.Owner.lender().Home)
	}
	h.lane.leave()
}

// Retain adds a reference.
func (h Held) Retain() Held {
	if h.lane == nil {
		h.Owner.Retain()
	} else {
		h.lane.held.Add(1)
	}
	return h
}

// Export is that of the owner.
func (h Held) Export(size uintptr) *bridge.Block {
	if h.lane == nil {
		return h.Owner.Export(size)
	}
	return h.lane.export(size)
}

// makeLanes gives the owner lanes. The caller holds a reference. An owner with lanes is not used again: a late Hold finds closed ones.
func (m *Owner) makeLanes() {
	all := new(lanes)
	all.left.Store(int32(len(all.all)) + 1)
	for i := range all.all {
		all.all[i].owner = m
	}
	m.Reuse = nil
	m.lanes.Store(all)
}

// close closes all lanes, and the owner's own exports, after the last reference to the owner.
func (all *lanes) close(m *Owner) {
	for i := range all.all {
		if all.all[i].held.Or(laneClosed) == 0 {
			all.all[i].end()
		}
	}
	if m.closeExports() {
		m.partEnded()
	}
}

// closeExports closes exports, which may be nil, and reports whether there are no trees.
func closeExports(e *bridge.Exports) bool {
	if e == nil {
		return true
	}
	if !e.Close() {
		return false // the last exported tree ends the memory
	}
	e.Free()
	return true
}

// partEnded ends the owner if no lane is left, and no export of its own.
func (m *Owner) partEnded() {
	if all := m.lanes.Load(); all != nil && all.left.Add(-1) != 0 {
		return
	}
	m.endAfter(m.users)
}

// enter adds a use of the lane, unless it is closed.
func (l *lane) enter() bool {
	for {
		was := l.held.Load()
		if was&laneClosed != 0 {
			return false
		}
		if l.held.CompareAndSwap(was, was+1) {
			return true
		}
	}
}

// leave ends a use. The last one ends a lane that was closed meanwhile.
func (l *lane) leave() {
	if l.held.Add(-1) == laneClosed {
		l.end()
	}
}

// end ends a closed lane that nobody uses. Trees that were exported in it end it later.
func (l *lane) end() {
	if closeExports(l.exports.Load()) {
		l.owner.partEnded()
	}
}

// Release is called when the last tree of the lane ends after it was closed.
func (l *lane) Release() {
	l.exports.Load().Ended()
	l.owner.partEnded()
}

// export is Owner.Export. The caller uses the lane.
func (l *lane) export(size uintptr) *bridge.Block {
	if e := l.exports.Load(); e != nil {
		return e.Take(size)
	}
	l.owner.mu.Lock()
	defer l.owner.mu.Unlock()
	if e := l.exports.Load(); e != nil {
		return e.Take(size)
	}
	e, block := bridge.NewExports(size, l, 0)
	if e != nil {
		l.exports.Store(e)
	}
	return block
}
