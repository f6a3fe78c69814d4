package bridge

// #include "bridge.h"
import "C"

import (
	"math"
	"sync/atomic"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/internal/live"
)

// Block mirrors struct cdevice_v0_block, the head of one C allocation that holds
// a whole exported tree.
type Block struct {
	Live     int64       // structs of the tree; the release of the last one frees the block
	Handle   handle.Word // given back by the last release; zero for none
	NoBuffer [2]uintptr  // the buffers array of a record batch's root: one NULL bitmap; the second aligns what follows
}

// BlockSize is the size of Block; what follows it in the allocation is aligned to 16.
const BlockSize = unsafe.Sizeof(Block{})

var (
	_ = [1]struct{}{}[BlockSize-C.sizeof_struct_cdevice_v0_block]
	_ = [1]struct{}{}[BlockSize%16]
)

// limit is the size of the largest block; see LimitBlocks.
var limit atomic.Uintptr

func init() { limit.Store(math.MaxInt) }

// LimitBlocks makes NewBlock and NewExport fail for blocks larger than size bytes, as without memory, until the
// returned function is called. It is for tests.
func LimitBlocks(size uintptr) (restore func()) {
	before := limit.Swap(size)
	return func() { limit.Store(before) }
}

// made counts blocks of NewBlock, without those that C has freed.
var made live.Counter

// NewBlock allocates a block of size bytes, the head included, for a schema or another object that is no array. All of
// it but Handle is uninitialised. It returns nil if there is no memory. The block is freed by
// the release callback of the last struct in it.
func NewBlock(size uintptr) *Block {
	block := newBlock(size)
	if block != nil {
		block.Handle = 0
		made.Add(1)
	}
	return block
}

// newBlock allocates a block of size bytes. It returns nil if there is no memory.
func newBlock(size uintptr) *Block {
	if size > limit.Load() {
		return nil
	}
	return (*Block)(unsafe.Pointer(C.cdevice_v0_block_new(C.size_t(size))))
}

// Attach sets the value that the last release of a struct in a block of NewBlock releases. It is called at most once.
func (b *Block) Attach(v handle.Releaser) { b.Handle = handle.New(v) }

// Blocks returns the number of blocks whose structs are not all released. As Counter.Sum, it never counts too few.
func Blocks() int64 {
	freed := int64(C.cdevice_v0_blocks_freed()) // before those that were made
	return made.Sum() - freed + Exports()
}

// exports counts exported trees of arrays whose end is not complete.
var exports live.Counter

// Exports returns the number of exported trees of arrays whose release is not complete.
func Exports() int64 { return exports.Sum() }

// NewExport allocates the block of an exported tree of arrays, size bytes with the head, uninitialised. One of
// Begin and Cancel follows. Without memory, it returns nil.
func NewExport(size uintptr) *Block { return newBlock(size) }

// Begin gives the structs in a block of NewExport their count, and a reference to what they keep alive. kind is for lists
// of live objects. The release of the last struct, on any thread, frees the block and releases the reference.
func (b *Block) Begin(kind string, structs int, of handle.Releaser) {
	if origin := live.Add(kind); origin != nil {
		of = &traced{of, origin}
	}
	b.Live, b.Handle = int64(structs), handle.New(of)
	exports.Add(1)
}

// Cancel frees a block of NewExport that has not begun.
func (b *Block) Cancel() { C.cdevice_v0_block_free((*C.uint64_t)(unsafe.Pointer(b))) }

// traced is the reference of an export that is listed until its release.
type traced struct {
	of     handle.Releaser
	origin *live.Object
}

func (t *traced) Release() {
	defer t.origin.Remove()
	t.of.Release()
}

//export cdevice_v0_go_export_ended
func cdevice_v0_go_export_ended(word C.uint64_t) {
	defer exports.Add(-1) // last: until here the release callback of a producer may run
	guard(func() { end(handle.Word(word)) })
}
