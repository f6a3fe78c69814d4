package bridge

// #include "counts.h"
// #include "exports.h"
import "C"

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/handle"
)

// Exports mirrors struct cdevice_v0_exports: the exported trees of one value, which exist as long as
// the value's Go side or a tree does. The memory of one tree is kept as a spare block, so that an
// export calls no C, and its release no Go.
type Exports struct {
	spare      atomic.Uint64 // taken, closed, listed, and perTake for each time that Take took the block, unless giveBack took it back
	refs       atomic.Int64
	handle     handle.Word
	size       uintptr // of the spare block
	allocation uintptr

	content        uintptr // of the spare block; see Filled
	next, previous uintptr // of the list; see list
}

const (
	taken   = C.CDEVICE_V0_TAKEN
	closed  = C.CDEVICE_V0_CLOSED
	listed  = C.CDEVICE_V0_LISTED
	perTake = C.CDEVICE_V0_TAKE
)

var _ = [1]struct{}{}[unsafe.Sizeof(Exports{})-C.sizeof_struct_cdevice_v0_exports]

// NewExports returns the exports of a value, and the block of the first tree, of size bytes with the
// head, which is as NewBlock returns it. v is released on the thread that releases the last tree, if
// Close has returned false. word is a handle of v, or 0; the end takes it. Without memory, NewExports
// returns nil.
func NewExports(size uintptr, v handle.Releaser, word handle.Word) (*Exports, *Block) {
	if size > limit.Load() {
		return nil, nil
	}
	e := (*Exports)(unsafe.Pointer(C.cdevice_v0_exports_new(C.size_t(size))))
	if e == nil {
		return nil, nil
	}
	if word == 0 {
		word = handle.NewNear(uint32(e.handle), v)
	}
	e.handle = word
	return e, e.block()
}

// begin begins the exports of another value, whose handle is word, in memory that is kept, and returns the block of the first tree.
func (e *Exports) begin(word handle.Word) *Block {
	e.handle, e.content = word|kept, 0
	e.refs.Store(1)
	was := e.spare.Load()
	e.spare.Store((was&^closed + perTake) | taken | listed)
	if was&listed == 0 {
		e.list()
	}
	return e.block()
}

// isKept reports whether the memory is that of a KeptExports.
func (e *Exports) isKept() bool { return e.handle&kept != 0 }

// Handle returns the handle of the value.
func (e *Exports) Handle() handle.Word { return e.handle &^ kept }

func (e *Exports) block() *Block { return (*Block)(unsafe.Add(unsafe.Pointer(e), unsafe.Sizeof(*e))) }

// words is the struct as C functions take it; see bridge.h.
func (e *Exports) words() *C.uint64_t { return (*C.uint64_t)(unsafe.Pointer(e)) }

// Take returns the block of another tree: the spare one if it is not taken and large enough,
// otherwise a new one. Without memory, it returns nil. Close has not been called.
func (e *Exports) Take(size uintptr) *Block {
	if size > limit.Load() {
		return nil
	}
	if was := e.spare.Load(); was&taken == 0 && size <= e.size && e.spare.CompareAndSwap(was, (was+perTake)|taken|listed) {
		if was&listed == 0 {
			e.list()
		}
		if asan {
			C.cdevice_v0_exports_unpoison(e.words())
		}
		return e.block()
	}
	return (*Block)(unsafe.Pointer(C.cdevice_v0_exports_block(e.words(), C.size_t(size))))
}

// Close ends the Go side of the value. It reports whether there are no trees, so that the caller
// ends the value, and calls Free. Otherwise the value that NewExports was given is released by the
// release of the last tree, and its Release calls Ended.
func (e *Exports) Close() (last bool) {
	ordered()
	if e.spare.Or(closed)&taken != 0 {
		return false
	}
	last = e.refs.Add(-1) == 0
	ordered()
	return last
}

// Free frees the exports, unless they are kept, after Close has returned true.
func (e *Exports) Free() {
	handle.Take(e.Handle())
	if !e.isKept() {
		e.unlist()
		C.cdevice_v0_exports_free(e.words())
	}
}

// Ended removes the exports, which C frees unless they are kept, from the list.
func (e *Exports) Ended() {
	if !e.isKept() {
		e.unlist()
	}
}

func (e *Exports) unlist() {
	if e.spare.Load()&listed != 0 {
		e.shard().remove(e)
	}
}

// Filled records that the block is filled from what is at an address, or nil for anything else, and
// reports whether it was filled from the same the time before: parts that consumers do not change are
// then as they were. The address is not used again as long as the value of the exports lives.
func (b *Block) Filled(from unsafe.Pointer) (again bool) {
	e := abi.At[Exports](b.exports)
	if e == nil || e.block() != b {
		return false
	}
	again = from != nil && e.content == uintptr(from)
	e.content = uintptr(from)
	return again
}

// Owners returns the number of Exports whose memory is not freed, without those that are kept. It is for tests.
func Owners() int64 { return int64(C.cdevice_v0_counted(C.CDEVICE_V0_OWNERS)) }

// shard is a part of the list of all exports whose spare block was taken. C counts trees that it
// allocates, and those that it releases. Those in between are counted where no other owner's are.
type shard struct {
	mu    sync.Mutex
	first uintptr // *Exports
	ended uint64  // the times of exports that were removed
	_     [128 - 24]byte
}

var shards [16]shard

var _ = [1]struct{}{}[unsafe.Sizeof(shards[0])-128]

// list adds e to the list. Only the first Take calls it.
func (e *Exports) list() {
	at, s := uintptr(unsafe.Pointer(e)), e.shard()
	s.mu.Lock()
	defer s.mu.Unlock()
	e.next, e.previous = s.first, 0
	if s.first != 0 {
		abi.At[Exports](s.first).previous = at
	}
	s.first = at
}

func (e *Exports) shard() *shard {
	at := uintptr(unsafe.Pointer(e))
	return &shards[(at>>6^at>>12)%uintptr(len(shards))]
}

func (s *shard) remove(e *Exports) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended += e.spare.Load() / perTake
	if e.next != 0 {
		abi.At[Exports](e.next).previous = e.previous
	}
	if e.previous != 0 {
		abi.At[Exports](e.previous).next = e.next
	} else {
		s.first = e.next
	}
}

// timesTaken returns how often spare blocks were taken, less how often Go gave them back.
func timesTaken() (n int64) {
	for i := range shards {
		s := &shards[i]
		s.mu.Lock()
		n += int64(s.ended)
		for at := s.first; at != 0; at = abi.At[Exports](at).next {
			n += int64(abi.At[Exports](at).spare.Load() / perTake)
		}
		s.mu.Unlock()
	}
	return n
}
