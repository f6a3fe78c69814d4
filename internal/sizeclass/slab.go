package sizeclass

import "github.com/arrowdevice/arrowdevice/device"

// slab is one allocation of the source. The whole of it is a block, or pieces of it are.
type slab struct {
	whole  piece
	pieces []*piece // that were ever cut
	count  int      // of them that are cut now
	cut    int64    // bytes, those between pieces included
	live   int      // pieces in use, or 1 for the whole
	watch  Watcher  // or nil
	epoch  uint64   // of the cache, when the slab became idle
}

// piece is the memory of a block, in use or free.
type piece struct {
	slab       *slab
	ptr        device.Ptr
	class      int
	uses       uint64 // goes up when a use of the piece begins, and when it ends
	prev, next *piece // of the list that a free piece is in
}

func newSlab(p device.Ptr, class int, watch Watcher) *slab {
	s := &slab{watch: watch}
	if watch != nil {
		watch.Keep(p, sizeOf(class))
	}
	s.whole = piece{slab: s, ptr: p, class: class}
	return s
}

// next returns where the next piece of this class begins.
func (s *slab) next(class int) int64 {
	align := min(sizeOf(class), alignment)
	return (s.cut + align - 1) &^ (align - 1)
}

// hasRoom reports whether a piece of this class can be cut.
func (s *slab) hasRoom(class int) bool {
	return s != nil && s.next(class)+sizeOf(class) <= sizeOf(s.whole.class)
}

func (s *slab) cutOff(class int) *piece {
	if s.count == len(s.pieces) {
		s.pieces = append(s.pieces, &piece{slab: s})
	}
	p := s.pieces[s.count]
	s.count++
	at := s.next(class)
	p.ptr, p.class = s.whole.ptr+device.Ptr(at), class
	s.cut = at + sizeOf(class)
	return p
}

// list is a list of free pieces, in the order in which they became free.
type list struct{ first, last *piece }

func (l *list) push(p *piece) {
	p.prev, p.next = l.last, nil
	if l.last == nil {
		l.first = p
	} else {
		l.last.next = p
	}
	l.last = p
}

func (l *list) remove(p *piece) {
	if p.prev == nil {
		l.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		l.last = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next = nil, nil
}
