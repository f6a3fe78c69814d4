package bridge

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

const sizeofArray = unsafe.Sizeof(abi.ArrowArray{})

// family is a struct with two children and a dictionary in a block.
func family(block *Block) (root *abi.ArrowArray, members []abi.ArrowArray) {
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

// newFamily exports a family, whose end it counts.
func newFamily() (root *abi.ArrowArray, members []abi.ArrowArray, ends *int) {
	ends = new(int)
	block := NewExport(BlockSize + familySize)
	block.Begin("test", 4, owner{func() { *ends++ }})
	root, members = family(block)
	return root, members, ends
}

const familySize = 3*sizeofArray + 16

func addressOf[T any](p *T) uintptr { return uintptr(unsafe.Pointer(p)) }

// The release of the root releases the members.
func TestReleaseOfAFamily(t *testing.T) {
	before := countsNow()
	root, members, ends := newFamily()
	assert.Equal(t, before.plus(1), countsNow())
	moved := members[2] // which keeps the block
	members[2].Release = 0
	CallArrayRelease(root)
	assert.Zero(t, root.Release)
	for _, m := range members {
		assert.Zero(t, m.Release)
	}
	assert.Zero(t, *ends)
	CallArrayRelease(&moved)
	assert.Equal(t, 1, *ends)
	assert.Equal(t, before, countsNow())
}

// Structs that were moved out of a tree keep it, on whichever thread they are released, and in which order.
func TestMovedStructsKeepTheTree(t *testing.T) {
	before := countsNow()
	here := CallArrayRelease
	elsewhere := func(a *abi.ArrowArray) { assert.NoError(t, cpeer.ReleaseOnThread(a)) }
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		for _, release := range []func(*abi.ArrowArray){here, elsewhere} {
			root, members, ends := newFamily()
			child, dictionary := members[1], members[2]
			members[1].Release, members[2].Release = 0, 0
			all := []*abi.ArrowArray{root, &child, &dictionary}
			for _, i := range order {
				assert.Zero(t, *ends)
				assert.Equal(t, before.plus(1), countsNow())
				release(all[i])
				assert.Zero(t, all[i].Release)
			}
			assert.Equal(t, 1, *ends)
			assert.Equal(t, before, countsNow())
		}
	}
}

// A callback that a consumer calls once too often, for a struct that is marked released, drops no struct of the block.
func TestCallbackOfAReleasedStructDoesNothing(t *testing.T) {
	before := countsNow()
	root, members, ends := newFamily()
	cpeer.ReleaseTwice(&members[0])
	assert.EqualValues(t, 3, abi.At[Block](root.PrivateData).Live)
	CallArrayRelease(root)
	assert.Equal(t, 1, *ends)

	block := NewBlock(BlockSize)
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
func TestReleaseOfChangedTrees(t *testing.T) {
	before := countsNow()
	for name, change := range map[string]func(root *abi.ArrowArray, members []abi.ArrowArray){
		"no pointer to a child": func(root *abi.ArrowArray, members []abi.ArrowArray) {
			CallArrayRelease(&members[0])
			*abi.At[uintptr](root.Children) = 0
		},
		"a negative number of children": func(root *abi.ArrowArray, members []abi.ArrowArray) {
			CallArrayRelease(&members[0])
			CallArrayRelease(&members[1])
			root.NChildren = -1
		},
		"no dictionary": func(root *abi.ArrowArray, members []abi.ArrowArray) {
			CallArrayRelease(&members[2])
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
			root, members, ends := newFamily()
			change(root, members)
			CallArrayRelease(root)
			assert.Equal(t, name == "a struct of another producer", foreignReleases == 1)
			assert.Equal(t, 1, *ends)
			assert.Equal(t, before, countsNow())
		})
	}
}

// A struct may be a part of a Go object that holds Go pointers.
func TestReleaseBesideGoPointers(t *testing.T) {
	before := countsNow()
	var beside struct {
		array abi.ArrowArray
		other *int
	}
	beside.other = new(int)
	root, _, _ := newFamily()
	for _, a := range []*abi.ArrowArray{root, oneArray(owner{func() {}})} {
		beside.array = *a
		CallArrayRelease(&beside.array)
		assert.Zero(t, beside.array.Release)
	}
	root, _, ends := newFamily()
	ReleaseMoved(root)
	assert.NotZero(t, root.Release, "the caller's struct stays as it is")
	assert.Equal(t, 1, *ends)
	assert.Equal(t, before, countsNow())
}
