package bridge

import (
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// exported is a value with exports, as tree.Owner has them: it must end once, on either side.
type exported struct {
	exports *Exports
	ends    atomic.Int64
}

func (x *exported) Release() {
	x.exports.Ended()
	x.ends.Add(1)
}

func (x *exported) close() {
	if x.exports.Close() {
		x.exports.Free()
		x.ends.Add(1)
	}
}

// struct1 is the one struct in a block.
func struct1(block *Block) *abi.ArrowArray {
	block.Live = 1
	return &abi.ArrowArray{Release: ReleaseArray, PrivateData: uintptr(unsafe.Pointer(block))}
}

func newExported(t *testing.T, size uintptr) (*exported, *abi.ArrowArray) {
	x := new(exported)
	var block *Block
	x.exports, block = NewExports(size, x, 0)
	require.NotNil(t, block)
	return x, struct1(block)
}

type counts struct {
	blocks, trees, owners int64
	handles               int
}

func countsNow() counts { return counts{Blocks(), Trees(), Owners(), handle.Live()} }

func (c counts) plus(trees, owners int64) counts {
	return counts{c.blocks + trees, c.trees + trees, c.owners + owners, c.handles + int(owners)}
}

// onBothSides runs a test with releases by the callback in C, and with those of Go code.
func onBothSides(t *testing.T, test func(t *testing.T, release func(*abi.ArrowArray))) {
	t.Run("in C", func(t *testing.T) { test(t, callArrayRelease) })
	t.Run("in Go", func(t *testing.T) { test(t, CallArrayRelease) })
}

func TestSpareBlockIsUsedAgain(t *testing.T) { onBothSides(t, testSpareBlockIsUsedAgain) }

func testSpareBlockIsUsedAgain(t *testing.T, release func(*abi.ArrowArray)) {
	before := countsNow()
	x, a := newExported(t, BlockSize+80)
	first := a.PrivateData
	assert.Zero(t, uintptr(unsafe.Pointer(x.exports))%64)
	for range 3 {
		assert.Equal(t, before.plus(1, 1), countsNow())
		release(a)
		assert.Equal(t, before.plus(0, 1), countsNow(), "a spare block is no tree")
		a = struct1(x.exports.Take(BlockSize + 80))
		assert.Equal(t, first, a.PrivateData)
	}

	second := struct1(x.exports.Take(BlockSize))
	assert.NotEqual(t, first, second.PrivateData, "the spare block is taken")
	assert.Equal(t, before.plus(2, 1), countsNow())
	release(a)
	large := struct1(x.exports.Take(BlockSize + 81))
	assert.NotEqual(t, first, large.PrivateData, "the spare block is too small")
	small := struct1(x.exports.Take(BlockSize))
	assert.Equal(t, first, small.PrivateData)
	assert.Equal(t, before.plus(3, 1), countsNow())
	release(small)
	release(second)
	release(large)
	assert.Equal(t, before.plus(0, 1), countsNow())
	x.close()
	assert.EqualValues(t, 1, x.ends.Load())
	assert.Equal(t, before, countsNow())
}

// Each order in which two trees and the Go side can end ends the value once, with the last of them.
func TestTheLastOneEndsTheValue(t *testing.T) {
	onBothSides(t, func(t *testing.T, release func(*abi.ArrowArray)) {
		testTheLastOneEndsTheValue(t, release, 1, func() (*exported, *abi.ArrowArray) { return newExported(t, BlockSize) })
	})
}

// The same with a spare block that was given back once, which C no longer counts.
func TestTheLastOneEndsTheListedValue(t *testing.T) {
	onBothSides(t, func(t *testing.T, release func(*abi.ArrowArray)) {
		testTheLastOneEndsTheValue(t, release, 1, func() (*exported, *abi.ArrowArray) {
			x, first := newExported(t, BlockSize)
			release(first)
			return x, struct1(x.exports.Take(BlockSize))
		})
	})
}

// Owners counts so many of each value.
func testTheLastOneEndsTheValue(t *testing.T, release func(*abi.ArrowArray), owners int64, begin func() (*exported, *abi.ArrowArray)) {
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		before := countsNow()
		x, a := begin()
		b := struct1(x.exports.Take(BlockSize))
		for i, which := range order {
			assert.Zero(t, x.ends.Load())
			[]func(){func() { release(a) }, func() { release(b) }, x.close}[which]()
			if i < 2 {
				assert.EqualValues(t, before.owners+owners, Owners())
			}
		}
		assert.EqualValues(t, 1, x.ends.Load(), "%v", order)
		assert.Equal(t, before, countsNow())
	}
}

// Until the value has ended, its last tree is counted: its end may be a producer's callback.
func TestTreesCountsUntilTheValueHasEnded(t *testing.T) {
	onBothSides(t, testTreesCountsUntilTheValueHasEnded)
}

func testTreesCountsUntilTheValueHasEnded(t *testing.T, release func(*abi.ArrowArray)) {
	before := Trees()
	var during int64
	var e *Exports
	e, block := NewExports(BlockSize, owner{func() {
		e.Ended()
		during = Trees()
	}}, 0)
	a := struct1(block)
	assert.False(t, e.Close())
	release(a)
	assert.Equal(t, before+1, during)
	assert.Equal(t, before, Trees())
}

func TestWithoutMemoryThereIsNoBlock(t *testing.T) {
	before := countsNow()
	x, a := newExported(t, BlockSize)
	func() {
		defer LimitBlocks(BlockSize - 1)()
		e, block := NewExports(BlockSize, x, 0)
		assert.Nil(t, e)
		assert.Nil(t, block)
		assert.Nil(t, x.exports.Take(BlockSize))
		CallArrayRelease(a)
		assert.Nil(t, x.exports.Take(BlockSize), "the spare block, too")
	}()
	assert.Equal(t, before.plus(0, 1), countsNow())
	x.close()
	assert.Equal(t, before, countsNow())
	e, _ := NewExports(^uintptr(0)-8, x, 0)
	assert.Nil(t, e, "the size overflows")
}

// Only the spare block is known to be filled from the same as the time before.
func TestFilledIsOfTheSpareBlock(t *testing.T) {
	one, other := abi.At[byte](Zeros), abi.At[byte](Zeros+1) // addresses that do not move as the stack may
	x, a := newExported(t, BlockSize+8)
	spare := abi.At[Block](a.PrivateData)
	for i, c := range []struct {
		from  *byte
		again bool
	}{{one, false}, {one, true}, {one, true}, {other, false}, {one, false}, {nil, false}, {nil, false}, {one, false}} {
		assert.Equal(t, c.again, spare.Filled(unsafe.Pointer(c.from)), i)
	}
	apart := x.exports.Take(BlockSize + 8)
	for range 2 {
		assert.False(t, apart.Filled(unsafe.Pointer(one)))
		assert.False(t, apart.Filled(unsafe.Pointer(other)))
	}
	assert.True(t, spare.Filled(unsafe.Pointer(one)), "the other block does not change it")
	tree := NewTree(BlockSize)
	assert.False(t, tree.Filled(unsafe.Pointer(one)), "a block without exports")
	tree.Own(owner{func() {}})
	for _, block := range []*Block{tree, apart} {
		CallArrayRelease(struct1(block))
	}
	CallArrayRelease(a)
	x.close()
}

// Trees are released on threads that Go has not seen, while Go exports more of them and then closes:
// every value ends once, and each tree has its block for itself.
func TestReleasesOnThreadsWhileGoExportsAndCloses(t *testing.T) {
	before := countsNow()
	values := 300
	if testing.Short() {
		values = 60
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for round := range values {
				x, a := newExported(t, BlockSize+8)
				var releases sync.WaitGroup
				for i := range 4 {
					content := abi.At[uint64](a.PrivateData + BlockSize)
					*content = uint64(i)
					tree := a
					releases.Go(func() {
						assert.EqualValues(t, i, *content, "another tree was given the block")
						if (i+round)%2 == 0 { // others by Go code
							CallArrayRelease(tree)
							return
						}
						assert.NoError(t, cpeer.ReleaseOnThread(tree))
					})
					if i == 3 {
						break
					}
					a = struct1(x.exports.Take(BlockSize + 8))
				}
				x.close()
				releases.Wait()
				assert.EqualValues(t, 1, x.ends.Load())
			}
		})
	}
	wg.Wait()
	assert.Equal(t, before, countsNow())
}

func TestTakeDoesNotAllocate(t *testing.T) {
	if asan {
		t.Skip("AddressSanitizer makes the compiler allocate where it otherwise does not")
	}
	x, a := newExported(t, BlockSize)
	CallArrayRelease(a)
	*a = *struct1(x.exports.Take(BlockSize)) // it lists the exports
	CallArrayRelease(a)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		block := x.exports.Take(BlockSize)
		block.Live = 1
		*a = abi.ArrowArray{Release: ReleaseArray, PrivateData: uintptr(unsafe.Pointer(block))}
		CallArrayRelease(a)
	}))
	x.close()
}
