package bridge

// #include "exports.h"
import "C"

import (
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// releaseInGo releases *a as cdevice_v0_release_array does, without a call into C for each release, if
// that is the struct's callback, and reports whether it did. It does so for the spare blocks of
// exports, but not for the first tree of exports, which C counted, unless their Go side is gone. Of the other blocks,
// it does so for those of NewTree, which C frees, without the way back into Go.
//
// Other structs of the tree may be released in C at the same time: both sides change the same words
// by atomic operations, in the same order.
func releaseInGo(a *abi.ArrowArray) bool {
	if a.Release != ReleaseArray {
		return false
	}
	block := abi.At[Block](a.PrivateData)
	e := abi.At[Exports](block.exports)
	switch {
	case e == nil:
		if block.Handle == 0 || block.Handle&uncounted != 0 {
			return false
		}
		ordered()
		if block.drop(block.mark(a)) {
			block.endTree()
		}
		return true
	case e.block() != block || e.spare.Load()&(listed|closed) == 0:
		return false
	}
	ordered()
	if block.drop(block.mark(a)) {
		e.giveBack()
	}
	return true
}

// endTree ends a block of NewTree whose structs are all released. It counts until the value has ended.
func (b *Block) endTree() {
	word := b.Handle
	if word&kept == 0 {
		defer b.Drop()
	} else {
		defer countAgain(b, -1)
	}
	contain(func() { end(word &^ kept) })
}

// mark marks the tree below a released and returns how many structs of the block that were. A struct
// that a consumer moved out of the tree is released already; its children went with it. A foreign
// struct that a consumer moved in is released by its callback.
func (b *Block) mark(a *abi.ArrowArray) (n int64) {
	n = 1
	if a.NChildren > 0 {
		for _, child := range abi.Slice[uintptr](a.Children, int(a.NChildren)) {
			n += b.markMember(abi.At[abi.ArrowArray](child))
		}
	}
	if a.Dictionary != 0 {
		n += b.markMember(abi.At[abi.ArrowArray](a.Dictionary))
	}
	a.Release = 0
	return n
}

func (b *Block) markMember(a *abi.ArrowArray) int64 {
	if a == nil || a.Release == 0 {
		return 0
	}
	if a.Release == ReleaseArray && abi.At[Block](a.PrivateData) == b {
		return b.mark(a)
	}
	CallArrayRelease(a)
	return 0
}

// drop drops n structs from the block, and reports whether they were the last. A caller that has all
// that are left needs no new count, since no other thread can drop one.
func (b *Block) drop(n int64) (last bool) {
	return atomic.LoadInt64(&b.Live) == n || atomic.AddInt64(&b.Live, -n) == 0
}

// giveBack gives the spare block back, whose structs are all released. If the Go side is gone, and no other
// tree is left, the value ends here. A tree that is given back is as if it was never taken, so that C
// need not count its end.
func (e *Exports) giveBack() {
	if asan {
		C.cdevice_v0_exports_poison(e.words())
	}
	for was := e.spare.Load(); was&closed == 0; was = e.spare.Load() {
		if e.spare.CompareAndSwap(was, was-perTake-taken) {
			return
		}
	}
	isKept, last := e.isKept(), C.int(0)
	if e.refs.Add(-1) == 0 {
		word := e.Handle()
		contain(func() { end(word) })
		last = 1
	}
	if isKept {
		countAgain(e.block(), -1) // *e may be of another value
		return
	}
	C.cdevice_v0_exports_left(e.words(), last) // without the last use, *e may be gone
}
