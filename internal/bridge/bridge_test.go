package bridge

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/handle"
)

type owner struct{ release func() }

func (o owner) Release() { o.release() }

// oneArray exports a single struct that keeps v alive.
func oneArray(v handle.Releaser) *abi.ArrowArray { return oneArrayIn(BlockSize, v) }

func oneArrayIn(size uintptr, v handle.Releaser) *abi.ArrowArray {
	block := NewExport(size)
	block.Begin("test", 1, v)
	return &abi.ArrowArray{Release: ReleaseArray, PrivateData: uintptr(unsafe.Pointer(block))}
}

type counts struct {
	blocks, exports int64
	handles         int
}

func countsNow() counts { return counts{Blocks(), Exports(), handle.Live()} }

// plus returns the counts with so many exports more.
func (c counts) plus(n int) counts {
	return counts{c.blocks + int64(n), c.exports + int64(n), c.handles + n}
}

// A value that is attached is released with the last struct, and is no export.
func TestAttachedValueIsNoExport(t *testing.T) {
	blocks, exports, handles := Blocks(), Exports(), handle.Live()
	released := 0
	for range 3 {
		block := NewBlock(BlockSize)
		block.Live = 2
		block.Attach(owner{func() {
			released++
			assert.Equal(t, exports, Exports())
		}})
		address := uintptr(unsafe.Pointer(block))
		assert.Equal(t, exports, Exports())
		assert.Equal(t, blocks+1, Blocks())
		before := released
		CallSchemaRelease(&abi.ArrowSchema{Release: ReleaseSchema, PrivateData: address})
		assert.Equal(t, before, released, "one struct is left")
		CallSchemaRelease(&abi.ArrowSchema{Release: ReleaseSchema, PrivateData: address})
		assert.Equal(t, before+1, released)
		assert.Equal(t, exports, Exports())
		assert.Equal(t, blocks, Blocks())
	}
	assert.Equal(t, handles, handle.Live())
}

// A consumer may put a struct of another tree into a schema, which its release then releases.
func TestReleaseOfAChangedSchema(t *testing.T) {
	blocks, released := Blocks(), 0
	schema := func() abi.ArrowSchema {
		block := NewBlock(BlockSize + 8 + 2*unsafe.Sizeof(abi.ArrowSchema{}))
		block.Live = 1
		block.Attach(owner{func() { released++ }})
		return abi.ArrowSchema{Release: ReleaseSchema, PrivateData: uintptr(unsafe.Pointer(block))}
	}
	root := schema()
	entry := root.PrivateData + BlockSize
	below := abi.Slice[abi.ArrowSchema](entry+8, 2)
	below[0], below[1] = schema(), schema()
	*abi.At[uintptr](entry) = addressOf(&below[0])
	root.NChildren, root.Children, root.Dictionary = 1, entry, addressOf(&below[1])
	CallSchemaRelease(&root)
	assert.Equal(t, 3, released)
	assert.Equal(t, blocks, Blocks())
}

// The parts of counts are those of threads: more threads than parts, and each struct is
// released by another thread than the one that made it.
func TestCountsOfManyThreads(t *testing.T) {
	blocks, exports := Blocks(), Exports()
	const each = 50
	var released atomic.Int64
	arrays := make(chan *abi.ArrowArray)
	var makers, takers sync.WaitGroup
	for range 100 {
		makers.Go(func() {
			runtime.LockOSThread() // and ends the thread
			for range each {
				arrays <- oneArray(owner{func() { released.Add(1) }})
			}
		})
		takers.Go(func() {
			runtime.LockOSThread()
			for a := range arrays {
				CallArrayRelease(a)
			}
		})
	}
	makers.Wait()
	close(arrays)
	takers.Wait()
	assert.EqualValues(t, 100*each, released.Load())
	assert.Equal(t, blocks, Blocks())
	assert.Equal(t, exports, Exports())
}

func TestPanicDoesNotCrossIntoC(t *testing.T) {
	var seen any
	defer func(before func(any, []byte)) { OnPanic = before }(OnPanic)
	OnPanic = func(v any, stack []byte) {
		seen = v
		assert.Contains(t, string(stack), "TestPanicDoesNotCrossIntoC")
	}
	CallArrayRelease(oneArray(owner{func() { panic("in a callback") }}))
	assert.Equal(t, "in a callback", seen)
}

func TestZerosAreZeroAndAligned(t *testing.T) {
	assert.Zero(t, Zeros%64)
	assert.Equal(t, make([]byte, 64), abi.Slice[byte](Zeros, 64))
}
