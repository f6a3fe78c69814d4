package bridge

// #include "bridge.h"
// #include "counts.h"
import "C"

import (
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/handle"
)

// Kept is the memory of one tree after the other. The zero value has none. The tree is of a value that ends with it: the
// release of the last struct calls Go, which keeps the block. The lock of the handle orders the uses of the block, and so does the
// pool or channel that the value goes through. Kept is a part of an object of the Go heap, with which the memory ends.
type Kept struct {
	block  *Block
	size   uintptr
	near   uint32
	freeAt runtime.Cleanup
}

const (
	keptMost = 64 << 10 // the size of the largest block that is kept
	keptSum  = 32 << 20 // the size of all of them, about
)

// Take returns a block as NewTree does. Own or Drop ends the use of it by the caller, whom no tree is left of.
func (k *Kept) Take(size uintptr) *Block {
	switch {
	case size > limit.Load():
		return nil
	case size <= k.size:
		countAgain(k.block, 1)
		return k.block
	}
	block := NewTree(size)
	if block == nil || size > keptMost || keptBytes.Load() > keptSum || asan { // which is to find accesses after the release
		return block
	}
	if k.block != nil {
		k.freeAt.Stop()
		free(memory{k.block, k.size})
	}
	keptBytes.Add(int64(size))
	k.block, k.size, k.near = block, size, uint32(block.Handle)
	k.freeAt = runtime.AddCleanup(k, free, memory{block, size})
	return block
}

// Own sets the value that the last release of a struct in a block of Take releases.
func (k *Kept) Own(b *Block, v handle.Releaser) {
	if b != k.block {
		b.Own(v)
		return
	}
	b.Handle = handle.NewNear(k.near, v) | kept
}

// Drop gives a block of Take back that has no structs.
func (k *Kept) Drop(b *Block) {
	if b != k.block {
		b.Drop()
		return
	}
	countAgain(b, -1)
}

// KeptExports is the memory of the exports of one value after the other, each of which ends before the next begins. The zero
// value has none. It is a part of an object of the Go heap, with which the memory ends: a value with exports that have not ended
// keeps the object reachable.
type KeptExports struct {
	exports *Exports
	near    uint32
	freeAt  runtime.Cleanup
}

// New is NewExports.
func (k *KeptExports) New(size uintptr, v handle.Releaser, word handle.Word) (*Exports, *Block) {
	if e := k.exports; e != nil && size <= min(e.size, limit.Load()) {
		if word == 0 {
			word = handle.NewNear(k.near, v)
		}
		return e, e.begin(word)
	}
	e, block := NewExports(size, v, word)
	if e == nil || size > keptMost || keptBytes.Load() > keptSum || asan {
		return e, block
	}
	if k.exports != nil {
		k.freeAt.Stop()
		freeExports(k.exports)
	}
	keptBytes.Add(int64(size))
	C.cdevice_v0_count(C.CDEVICE_V0_OWNERS, -1)
	k.exports, k.near = e, uint32(e.handle)-1 // the number that has this word
	e.handle |= kept
	k.freeAt = runtime.AddCleanup(k, freeExports, e)
	return e, block
}

func freeExports(e *Exports) {
	size := int64(e.size)
	e.unlist()
	C.cdevice_v0_block_free((*C.uint64_t)(abi.Pointer(e.allocation)))
	keptBytes.Add(-size)
}

// kept marks the handle of a block or of exports that C does not free. No word has this bit.
const kept handle.Word = C.CDEVICE_V0_KEPT

// keptBytes is the size of the blocks that are kept.
var keptBytes atomic.Int64

// memory is a block of Kept.
type memory struct {
	block *Block
	size  uintptr
}

func free(m memory) {
	C.cdevice_v0_block_free((*C.uint64_t)(unsafe.Pointer(m.block)))
	keptBytes.Add(-int64(m.size))
}

// again counts the trees in blocks that were kept, and those of them that Go ended; C counts the others.
var again [16]struct {
	atomic.Int64
	_ [120]byte // processors fetch cache lines in pairs
}

func countAgain(b *Block, n int64) { again[uintptr(unsafe.Pointer(b))>>7%uintptr(len(again))].Add(n) }

func timesAgain() (n int64) {
	for i := range again {
		n += again[i].Load()
	}
	return n
}
