package bridge

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// huge is the size of a block that free gives back to the system, so that a later access ends the process.
const huge = 64 << 20

// ownedTensor is the head of a tensor that deletes a DLExport; offsets are of the words of the struct.
func ownedTensor(block *DLExport, context, deleter int, call uintptr) uintptr {
	at := uintptr(unsafe.Pointer(block)) + unsafe.Sizeof(*block)
	words := abi.Slice[uintptr](at, 10)
	words[context], words[deleter] = uintptr(unsafe.Pointer(block)), call
	return at
}

// The last release of what a block holds frees it, and reads it no more.
func TestFreedBlocksAreNotAccessed(t *testing.T) {
	before, released := countsNow(), 0
	count := owner{func() { released++ }}
	dlExport := func() *DLExport {
		block := NewDLExport(huge)
		block.Array = *oneArray(count)
		return block
	}
	dlImport := func(versioned bool) {
		tensor := cpeer.NewTensor(cpeer.TensorFields{})
		defer tensor.Free()
		address := tensor.Legacy()
		if versioned {
			address = tensor.Versioned()
		}
		block := NewDLImport(address, versioned, huge)
		a := &abi.ArrowArray{Release: DLRelease, PrivateData: uintptr(unsafe.Pointer(block))}
		child := &abi.ArrowArray{Release: DLReleaseChild}
		for _, s := range []*abi.ArrowArray{child, a} {
			CallArrayRelease(s)
			assert.Zero(t, s.Release)
		}
		released += tensor.Deleted()
	}
	for name, use := range map[string]func(){
		"array": func() {
			a := oneArrayIn(huge, count)
			CallArrayRelease(a)
			assert.Zero(t, a.Release)
		},
		"schema": func() {
			block := NewBlock(huge)
			block.Live = 1
			block.Attach(count)
			CallSchemaRelease(&abi.ArrowSchema{Release: ReleaseSchema, PrivateData: uintptr(unsafe.Pointer(block))})
		},
		"tensor":                func() { CallDLDeleter(ownedTensor(dlExport(), 6, 7, DLDelete), false) },
		"versioned tensor":      func() { CallDLDeleter(ownedTensor(dlExport(), 1, 2, DLDeleteVersioned), true) },
		"array of a tensor":     func() { dlImport(false) },
		"array of a new tensor": func() { dlImport(true) },
	} {
		t.Run(name, func(t *testing.T) {
			released = 0
			use()
			assert.Equal(t, 1, released)
			assert.Equal(t, before, countsNow())
		})
	}
}
