// Package bridge has all calls between Go and C of the Arrow interfaces: the callbacks of the
// structs that we export, and calls of the callbacks of foreign structs. Policy is left to the
// packages that use it.
package bridge

// #include "bridge.h"
// #include "counts.h"
import "C"

import (
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/handle"
)

// Block mirrors struct cdevice_v0_block, the head of one C allocation that holds
// a whole exported tree.
type Block struct {
	Live     int64       // structs of the tree; the last one released frees the block
	Handle   handle.Word // given back by the last release; zero for none; see Attach
	exports  uintptr
	NoBuffer uintptr // the buffers array of a record batch's root: one NULL bitmap
}

// BlockSize is the size of Block; what follows it in the allocation is aligned to 16.
const BlockSize = unsafe.Sizeof(Block{})

var (
	_ = [1]struct{}{}[BlockSize-C.sizeof_struct_cdevice_v0_block]
	_ = [1]struct{}{}[BlockSize%16]
)

// limit is the largest block that NewBlock gives; see LimitBlocks.
var limit atomic.Uintptr

func init() { limit.Store(math.MaxInt) }

// LimitBlocks makes NewBlock fail for blocks larger than size bytes, as without memory, until the
// returned function is called. It is for tests.
func LimitBlocks(size uintptr) (restore func()) {
	before := limit.Swap(size)
	return func() { limit.Store(before) }
}

// NewBlock allocates a block of size bytes, the head included, for structs without a handle. All of
// it but Handle is uninitialised. It returns nil if there is no memory. The block is freed by
// the release callback of the last struct in it.
func NewBlock(size uintptr) *Block {
	block := newBlock(size, C.CDEVICE_V0_OTHERS)
	if block != nil {
		block.Handle = 0
	}
	return block
}

// NewTree is NewBlock for structs that keep a value alive, which the caller sets by Own. The trees
// of a value that is exported again and again are those of Exports.
func NewTree(size uintptr) *Block { return newBlock(size, C.CDEVICE_V0_TREES) }

// Own sets the value that the last release of a struct in a block of NewTree releases. It is called
// once.
func (b *Block) Own(v handle.Releaser) { b.Handle = handle.NewNear(uint32(b.Handle), v) }

// Drop frees a block of NewTree whose structs no consumer has, and that keeps no value alive.
func (b *Block) Drop() { C.cdevice_v0_tree_free((*C.uint64_t)(unsafe.Pointer(b))) }

// Attach sets the value that the last release of a struct in a block of NewBlock releases. Trees
// does not count the block. It is called at most once.
func (b *Block) Attach(v handle.Releaser) { b.Handle = handle.New(v) | uncounted }

// uncounted marks the handle of a block that Trees does not count. No word has this bit.
const uncounted handle.Word = C.CDEVICE_V0_UNCOUNTED

func newBlock(size uintptr, kind C.int) *Block {
	if size > limit.Load() {
		return nil
	}
	return (*Block)(unsafe.Pointer(C.cdevice_v0_block_new(C.size_t(size), kind)))
}

// Blocks returns the number of blocks whose structs are not all released. Spare blocks are none of
// them.
func Blocks() int64 { return int64(C.cdevice_v0_counted(C.CDEVICE_V0_OTHERS)) + Trees() }

// Trees returns the number of trees whose release is not complete: of blocks of NewTree, Kept and Exports.
func Trees() int64 {
	return int64(C.cdevice_v0_counted(C.CDEVICE_V0_TREES)) + timesTaken() + timesAgain()
}

// C addresses that exported structs hold.
var (
	ReleaseArray  = uintptr(C.cdevice_v0_release_array)
	ReleaseSchema = uintptr(C.cdevice_v0_release_schema)
	// Zeros is the address of 64 zero bytes, aligned to 64.
	Zeros = uintptr(unsafe.Pointer(&C.cdevice_v0_zeros))
)

// CallArrayRelease calls the release callback of a, which must not be released
// yet. The callback runs on this thread and may call back into Go. A callback of our own is not
// called if Go can do the same; see releaseInGo.
func CallArrayRelease(a *abi.ArrowArray) {
	if !releaseInGo(a) {
		callArrayRelease(a)
	}
}

func callArrayRelease(a *abi.ArrowArray) {
	ordered()
	C.cdevice_v0_call_array_release((*C.uint64_t)(unsafe.Pointer(a)))
}

// ReleaseMoved is CallArrayRelease for a struct that was moved to *a. A callback gets a copy in memory of
// C: a callback that is written in Go may pass the struct to C, and cgo's checks would search the
// whole Go object that *a is a part of for Go pointers. *a is not marked released.
func ReleaseMoved(a *abi.ArrowArray) {
	if moved := *a; releaseInGo(&moved) {
		return
	}
	ordered()
	C.cdevice_v0_release_moved((*C.uint64_t)(unsafe.Pointer(a)))
}

// CallSchemaRelease calls the release callback of s, which must not be released yet.
func CallSchemaRelease(s *abi.ArrowSchema) {
	C.cdevice_v0_call_schema_release((*C.uint64_t)(unsafe.Pointer(s)))
}
