//go:build !asan

package bridge

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// A block is used again after the release of the last struct, on either side, and by no other tree before.
func TestKeptBlocks(t *testing.T) {
	before := countsNow()
	CountCallbacks()
	k := new(Kept)
	var first *Block
	for i := range 6 {
		calls := callsIntoC(func() {
			block := k.Take(BlockSize + 8)
			require.NotNil(t, block)
			if first == nil {
				first = block
			}
			assert.Same(t, first, block)
			block.Live = 2
			ended := 0
			k.Own(block, owner{func() { ended++ }})
			root := &abi.ArrowArray{Release: ReleaseArray, PrivateData: uintptr(unsafe.Pointer(block))}
			child := *root
			if i%2 == 0 {
				CallArrayRelease(root)
				assert.Zero(t, ended)
				CallArrayRelease(&child)
			} else {
				callArrayRelease(root)
				assert.Zero(t, ended)
				callbacks := Callbacks()
				callArrayRelease(&child)
				assert.Equal(t, callbacks+1, Callbacks())
			}
			assert.Equal(t, 1, ended)
		})
		if i%2 == 0 && i > 0 {
			assert.Zero(t, calls, "an export calls no C, nor does its release by Go")
		}
		assert.Equal(t, before, countsNow())
	}
	for range 2 {
		block := k.Take(BlockSize)
		assert.Equal(t, before.plus(1, 0), countsNow())
		k.Drop(block)
		assert.Equal(t, before, countsNow())
	}
	runtime.KeepAlive(k)
}

// A larger block takes the place of the one that is kept, and the largest are not kept.
func TestKeptBlockThatIsTooSmall(t *testing.T) {
	before, bytes := countsNow(), keptBytes.Load()
	k := new(Kept)
	k.Drop(k.Take(BlockSize))
	k.Drop(k.Take(2 * BlockSize))
	assert.Equal(t, 2*BlockSize, k.size)
	assert.EqualValues(t, bytes+int64(2*BlockSize), keptBytes.Load())
	large := k.Take(keptMost + 1)
	assert.NotSame(t, k.block, large)
	k.Drop(large)
	ended := 0
	large = k.Take(keptMost + 1)
	large.Live = 1
	k.Own(large, owner{func() { ended++ }})
	callArrayRelease(&abi.ArrowArray{Release: ReleaseArray, PrivateData: uintptr(unsafe.Pointer(large))})
	assert.Equal(t, 1, ended)
	func() {
		defer LimitBlocks(BlockSize)()
		assert.Nil(t, k.Take(2*BlockSize))
		assert.Nil(t, k.Take(3*BlockSize))
	}()
	assert.Equal(t, before, countsNow())
	runtime.KeepAlive(k)
}

// A block ends with the object that keeps it.
func TestKeptBlockIsFreed(t *testing.T) {
	keptMemoryEnds(t)
	func() {
		k := new(Kept)
		k.Drop(k.Take(BlockSize))
		assert.EqualValues(t, BlockSize, keptBytes.Load())
		runtime.KeepAlive(k)
	}()
	keptMemoryEnds(t)
}

// When the blocks that are kept have a certain size in all, others are freed.
func TestKeptBlocksHaveALimit(t *testing.T) {
	before := countsNow()
	defer keptBytes.Add(-keptSum - 1)
	keptBytes.Add(keptSum + 1)
	k := new(Kept)
	block, ended := k.Take(BlockSize), 0
	block.Live = 1
	k.Own(block, owner{func() { ended++ }})
	assert.Nil(t, k.block)
	CallArrayRelease(&abi.ArrowArray{Release: ReleaseArray, PrivateData: uintptr(unsafe.Pointer(block))})
	assert.Equal(t, 1, ended)
	assert.Equal(t, before, countsNow())
}

// next begins the exports of another value in kept memory.
func (k *KeptExports) next(t *testing.T, size uintptr) (*exported, *abi.ArrowArray) {
	x := new(exported)
	var block *Block
	x.exports, block = k.New(size, x, 0)
	require.NotNil(t, block)
	return x, struct1(block)
}

// The exports of one value after the other, in all orders of their ends on both sides, in one memory.
func TestKeptExportsEndTheirValues(t *testing.T) {
	k := new(KeptExports)
	var at *Exports
	onBothSides(t, func(t *testing.T, release func(*abi.ArrowArray)) {
		testTheLastOneEndsTheValue(t, release, 0, func() (*exported, *abi.ArrowArray) {
			x, a := k.next(t, BlockSize)
			if at == nil {
				at = x.exports
			}
			assert.Same(t, at, x.exports)
			return x, a
		})
	})
	runtime.KeepAlive(k)
}

// Go code that begins, releases and ends the exports of another value calls no C, in either order.
func TestKeptExportsCallNoC(t *testing.T) {
	before := countsNow()
	k := new(KeptExports)
	for i := range 6 {
		calls := callsIntoC(func() {
			x, a := k.next(t, BlockSize)
			if i%2 == 0 {
				x.close()
				CallArrayRelease(a)
			} else {
				CallArrayRelease(a)
				x.close()
			}
			assert.EqualValues(t, 1, x.ends.Load())
		})
		if i > 0 {
			assert.Zero(t, calls, i)
		}
		assert.Equal(t, before, countsNow())
	}
	runtime.KeepAlive(k)
}

// What the exports of the value before were filled from does not count.
func TestKeptExportsAreNotFilled(t *testing.T) {
	k := new(KeptExports)
	for range 3 {
		before := Trees()
		x, a := k.next(t, BlockSize)
		assert.Equal(t, before+1, Trees())
		block := abi.At[Block](a.PrivateData)
		assert.False(t, block.Filled(unsafe.Pointer(&ReleaseArray)))
		assert.True(t, block.Filled(unsafe.Pointer(&ReleaseArray)))
		CallArrayRelease(a)
		x.close()
	}
	runtime.KeepAlive(k)
}

// A release in C of the last tree may have the value's exports begin again: C looks at them no more.
func TestKeptExportsBeginWithinTheEndOfOthers(t *testing.T) {
	before := countsNow()
	k := new(KeptExports)
	for _, release := range []func(*abi.ArrowArray){callArrayRelease, CallArrayRelease} {
		var again *abi.ArrowArray
		x := new(exported)
		e, block := k.New(BlockSize, owner{func() { x, again = k.next(t, BlockSize) }}, 0)
		a := struct1(block)
		assert.False(t, e.Close())
		release(a)
		require.NotNil(t, again)
		assert.Same(t, e, x.exports)
		assert.Equal(t, before.plus(1, 0).trees, Trees())
		release(again)
		x.close()
		assert.EqualValues(t, 1, x.ends.Load())
		assert.Equal(t, before, countsNow())
	}
	runtime.KeepAlive(k)
}

// Larger exports take the place of those that are kept, the largest are not kept, nor those beyond the limit of all.
func TestKeptExportsHaveLimits(t *testing.T) {
	before, bytes := countsNow(), keptBytes.Load()
	k := new(KeptExports)
	end := func(x *exported, a *abi.ArrowArray) *Exports {
		CallArrayRelease(a)
		x.close()
		return x.exports
	}
	end(k.next(t, BlockSize))
	larger := end(k.next(t, 2*BlockSize))
	assert.EqualValues(t, bytes+int64(2*BlockSize), keptBytes.Load())
	assert.Same(t, larger, end(k.next(t, BlockSize)))
	x, a := k.next(t, keptMost+1)
	assert.False(t, x.exports.isKept())
	assert.Equal(t, before.plus(1, 1), countsNow())
	end(x, a)
	func() {
		defer LimitBlocks(BlockSize - 1)()
		e, block := k.New(BlockSize, x, 0)
		assert.Nil(t, e)
		assert.Nil(t, block)
	}()
	assert.Same(t, larger, end(k.next(t, BlockSize)))
	assert.Equal(t, before, countsNow())
	runtime.KeepAlive(k)

	defer keptBytes.Add(-keptSum - 1)
	keptBytes.Add(keptSum + 1)
	k = new(KeptExports)
	x, a = k.next(t, BlockSize)
	assert.False(t, x.exports.isKept())
	end(x, a)
	assert.Equal(t, before, countsNow())
}

// The memory ends with the object that keeps it, and what was counted there stays counted.
func TestKeptExportsAreFreed(t *testing.T) {
	keptMemoryEnds(t)
	before := countsNow()
	func() {
		k := new(KeptExports)
		for range 3 {
			x, a := k.next(t, BlockSize)
			callArrayRelease(a)
			x.close()
		}
		assert.EqualValues(t, BlockSize, keptBytes.Load())
		assert.Equal(t, before, countsNow())
		runtime.KeepAlive(k)
	}()
	keptMemoryEnds(t)
	assert.Equal(t, before, countsNow())
}
