package bridge

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/handle"
)

type owner struct{ release func() }

func (o owner) Release() { o.release() }

// oneArray exports a single struct whose release gives back the handle of v.
func oneArray(v handle.Releaser) *abi.ArrowArray {
	block := NewBlock(BlockSize)
	block.Live, block.Handle = 1, handle.New(v)
	return &abi.ArrowArray{Release: ReleaseArray, PrivateData: uintptr(unsafe.Pointer(block))}
}

func TestReleaseGivesTheHandleBackOnce(t *testing.T) {
	blocks, released := Blocks(), 0
	a := oneArray(owner{func() { released++ }})
	assert.Equal(t, blocks+1, Blocks())
	CallArrayRelease(a)
	assert.Equal(t, 1, released)
	assert.Zero(t, a.Release)
	assert.Equal(t, blocks, Blocks())
}

// A struct may be a part of a Go object that holds Go pointers.
func TestReleaseBesideGoPointers(t *testing.T) {
	released := 0
	var beside struct {
		array abi.ArrowArray
		other *int
	}
	beside.other = new(int)
	beside.array = *oneArray(owner{func() { released++ }})
	CallArrayRelease(&beside.array)
	assert.Equal(t, 1, released)
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
