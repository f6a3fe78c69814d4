//go:build !asan

package bridge

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
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
	within.Eventually(t, "the end of the blocks of other tests", func() bool { runtime.GC(); return keptBytes.Load() == 0 })
	func() {
		k := new(Kept)
		k.Drop(k.Take(BlockSize))
		assert.EqualValues(t, BlockSize, keptBytes.Load())
		runtime.KeepAlive(k)
	}()
	within.Eventually(t, "the end of the block", func() bool { runtime.GC(); return keptBytes.Load() == 0 })
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
