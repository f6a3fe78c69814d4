package bridge

import (
	"runtime"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// takenAgain returns exports whose spare block was given back once, and fits structs of size bytes.
func takenAgain(t *testing.T, size uintptr) *exported {
	x, first := newExported(t, BlockSize+size)
	CallArrayRelease(first)
	return x
}

const sizeofArray = unsafe.Sizeof(abi.ArrowArray{})

// family is a struct with two children and a dictionary, in the spare block of x.
func family(x *exported) (root *abi.ArrowArray, members []abi.ArrowArray) {
	block := x.exports.Take(BlockSize + familySize)
	block.Live = 4
	start := uintptr(unsafe.Pointer(block))
	members = abi.Slice[abi.ArrowArray](start+BlockSize, 3)
	pointers := abi.Slice[uintptr](start+BlockSize+3*sizeofArray, 2)
	for i := range members {
		members[i] = abi.ArrowArray{Release: ReleaseArray, PrivateData: start}
	}
	pointers[0], pointers[1] = addressOf(&members[0]), addressOf(&members[1])
	return &abi.ArrowArray{
		NChildren: 2, Children: addressOf(&pointers[0]), Dictionary: addressOf(&members[2]),
		Release: ReleaseArray, PrivateData: start,
	}, members
}

const familySize = 3*sizeofArray + 16

func addressOf[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

func callsIntoC(do func()) int64 {
	before := runtime.NumCgoCall()
	do()
	return runtime.NumCgoCall() - before
}

// A tree in a spare block is released without a call into C, and the members with it.
func TestReleaseInGoCallsNoC(t *testing.T) {
	before := countsNow()
	x := takenAgain(t, familySize)
	for range 3 {
		root, members := family(x)
		assert.Equal(t, before.plus(1, 1), countsNow())
		calls := int64(0)
		if asan { // which is told of memory that is not used
			calls = 1
		}
		assert.Equal(t, calls, callsIntoC(func() { CallArrayRelease(root) }))
		assert.Zero(t, root.Release)
		assert.Equal(t, before.plus(0, 1), countsNow())
		if !asan {
			for _, m := range members {
				assert.Zero(t, m.Release)
			}
		}
	}
	x.close()
	assert.Equal(t, before, countsNow())
}

// A tree that was not made of exports is released by Go code with one call into C, which frees it, and none back.
func TestReleaseInGoOfATree(t *testing.T) {
	before := countsNow()
	CountCallbacks()
	callbacks, during := Callbacks(), int64(0)
	a := oneArray(owner{func() { during = Trees() }})
	CallArrayRelease(a)
	assert.Zero(t, a.Release)
	assert.EqualValues(t, before.trees+1, during, "counted until the value is released")
	assert.Equal(t, before, countsNow())
	a = oneArray(owner{func() {}})
	assert.EqualValues(t, 1, callsIntoC(func() { CallArrayRelease(a) }))
	assert.Equal(t, callbacks, Callbacks())

	block := NewTree(BlockSize)
	block.Live = 2
	var ended int
	block.Own(owner{func() { ended++ }})
	own := uintptr(unsafe.Pointer(block))
	CallArrayRelease(&abi.ArrowArray{Release: ReleaseArray, PrivateData: own})
	assert.Zero(t, ended, "a struct was moved out")
	callArrayRelease(&abi.ArrowArray{Release: ReleaseArray, PrivateData: own})
	assert.Equal(t, 1, ended)
	assert.Equal(t, before, countsNow())
}

// Structs that were moved out of a tree keep the block, whichever side releases which of them.
func TestMovedStructsAreReleasedOnEitherSide(t *testing.T) {
	before := countsNow()
	inC, inGo := callArrayRelease, CallArrayRelease
	for _, order := range [][3]func(*abi.ArrowArray){{inGo, inGo, inGo}, {inC, inGo, inGo}, {inGo, inC, inGo}, {inGo, inGo, inC}, {inC, inC, inGo}, {inC, inC, inC}} {
		x := takenAgain(t, familySize)
		root, members := family(x)
		child, dictionary := members[1], members[2]
		members[1].Release, members[2].Release = 0, 0
		for i, s := range []*abi.ArrowArray{root, &child, &dictionary} {
			assert.Equal(t, before.plus(1, 1), countsNow())
			order[i](s)
			assert.Zero(t, s.Release)
		}
		assert.Equal(t, before.plus(0, 1), countsNow())
		x.close()
		assert.Equal(t, before, countsNow())
	}
}

// A callback that a consumer calls once too often, for a struct that is marked released, drops no struct of the block.
func TestCallbackOfAReleasedStructDoesNothing(t *testing.T) {
	before := countsNow()
	x := takenAgain(t, familySize)
	root, members := family(x)
	cpeer.ReleaseTwice(&members[0])
	block := abi.At[Block](root.PrivateData)
	assert.EqualValues(t, 3, block.Live)
	CallArrayRelease(root)
	assert.Equal(t, before.plus(0, 1), countsNow())
	x.close()

	block = NewBlock(BlockSize)
	block.Live = 2
	own := uintptr(unsafe.Pointer(block))
	cpeer.ReleaseSchemaTwice(&abi.ArrowSchema{Release: ReleaseSchema, PrivateData: own})
	assert.EqualValues(t, 1, block.Live)
	CallSchemaRelease(&abi.ArrowSchema{Release: ReleaseSchema, PrivateData: own})
	assert.Equal(t, before, countsNow())
}

// foreignReleases is changed in C.
var foreignReleases int64

// What consumers do to a tree before they release it.
func TestReleaseOfChangedTrees(t *testing.T) { onBothSides(t, testReleaseOfChangedTrees) }

func testReleaseOfChangedTrees(t *testing.T, release func(*abi.ArrowArray)) {
	before := countsNow()
	for name, change := range map[string]func(root *abi.ArrowArray, members []abi.ArrowArray){
		"no pointer to a child": func(root *abi.ArrowArray, members []abi.ArrowArray) {
			CallArrayRelease(&members[0])
			*abi.At[uintptr](root.Children) = 0
		},
		"a negative number of children": func(root *abi.ArrowArray, members []abi.ArrowArray) {
			CallArrayRelease(&members[0])
			callArrayRelease(&members[1])
			root.NChildren = -1
		},
		"no dictionary": func(root *abi.ArrowArray, members []abi.ArrowArray) {
			callArrayRelease(&members[2])
			root.Dictionary = 0
		},
		"a struct of another tree": func(root *abi.ArrowArray, members []abi.ArrowArray) {
			CallArrayRelease(&members[0])
			members[0] = *oneArray(owner{func() {}})
		},
		"a struct of another producer": func(root *abi.ArrowArray, members []abi.ArrowArray) {
			CallArrayRelease(&members[0])
			members[0] = abi.ArrowArray{Release: cpeer.CountArrayRelease, PrivateData: addressOf(&foreignReleases)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			foreignReleases = 0
			x := takenAgain(t, familySize)
			root, members := family(x)
			change(root, members)
			assert.EqualValues(t, before.owners+1, Owners())
			assert.GreaterOrEqual(t, Trees(), before.trees+1)
			release(root)
			assert.Equal(t, name == "a struct of another producer", foreignReleases == 1)
			assert.Equal(t, before.plus(0, 1), countsNow())
			x.close()
			assert.Equal(t, before, countsNow())
		})
	}
}

// A struct may be a part of a Go object that holds Go pointers, whether C releases it or Go.
func TestReleaseBesideGoPointers(t *testing.T) {
	x := takenAgain(t, familySize)
	var beside struct {
		array abi.ArrowArray
		other *int
	}
	beside.other = new(int)
	root, _ := family(x)
	for _, a := range []*abi.ArrowArray{root, oneArray(owner{func() {}})} {
		beside.array = *a
		CallArrayRelease(&beside.array)
		assert.Zero(t, beside.array.Release)
	}
	root, _ = family(x)
	ReleaseMoved(root)
	assert.NotZero(t, root.Release, "the caller's struct stays as it is")
	x.close()
}

// The end of a value that is released in Go may panic, as one in a callback may.
func TestPanicOfAReleaseInGo(t *testing.T) {
	before := countsNow()
	var seen any
	defer func(before func(any, []byte)) { OnPanic = before }(OnPanic)
	OnPanic = func(v any, _ []byte) { seen = v }
	var e *Exports
	e, block := NewExports(BlockSize, owner{func() {
		e.Ended()
		panic("at the end of a value")
	}}, 0)
	a := struct1(block)
	assert.False(t, e.Close())
	CountCallbacks()
	callbacks := Callbacks()
	calls := int64(1) // which frees the exports
	if asan {
		calls = 2
	}
	assert.Equal(t, calls, callsIntoC(func() { CallArrayRelease(a) }))
	assert.Equal(t, callbacks, Callbacks())
	assert.Equal(t, "at the end of a value", seen)
	assert.Equal(t, before, countsNow())
}

// Two structs of one tree are released at the same time, one on each side, while the Go side closes.
func TestReleasesOfOneTreeOnBothSides(t *testing.T) {
	before := countsNow()
	rounds := 2000
	if testing.Short() {
		rounds = 200
	}
	for range rounds {
		x := takenAgain(t, familySize)
		root, members := family(x)
		child := members[1]
		members[1].Release = 0
		var releases sync.WaitGroup
		releases.Go(func() { CallArrayRelease(&child) })
		releases.Go(func() { assert.NoError(t, cpeer.ReleaseOnThread(root)) })
		releases.Go(x.close)
		releases.Wait()
		require.EqualValues(t, 1, x.ends.Load())
	}
	assert.Equal(t, before, countsNow())
}
