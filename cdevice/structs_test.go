package cdevice_test

import (
	"sync/atomic"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// addressOf is the address of a Go variable, which it makes live on the heap: a
// stack may move, and an integer does not follow.
func addressOf[T any](p *T) uintptr {
	escaped.Store((*byte)(unsafe.Pointer(p)))
	return uintptr(unsafe.Pointer(p))
}

var escaped atomic.Pointer[byte]

func plainArray(a *cdata.CArrowArray) *abi.ArrowArray { return (*abi.ArrowArray)(unsafe.Pointer(a)) }

// plainStream and plainArray see a struct of cdata's as the tests of this package do.
func plainStream(s *cdata.CArrowArrayStream) *abi.ArrowArrayStream {
	return (*abi.ArrowArrayStream)(unsafe.Pointer(s))
}

// children are the addresses of the structs below a.
func children(a *abi.ArrowArray) []uintptr { return abi.Slice[uintptr](a.Children, int(a.NChildren)) }

// foreignSchema makes an ArrowSchema in C memory whose releases are counted:
// the root's in counts[0], all below in counts[1].
func foreignSchema(a *arena, format string, children ...*abi.ArrowSchema) (s *abi.ArrowSchema, counts []int64) {
	s, counts = &allocC[abi.ArrowSchema](a, 1)[0], allocC[int64](a, 2)
	s.Format, s.Release, s.PrivateData = a.cString(format), cpeer.CountSchemaRelease, sliceAddress(counts)
	entries := allocC[uintptr](a, len(children)+room)
	for i, child := range children {
		child.PrivateData = sliceAddress(counts[1:])
		entries[i] = addressOf(child)
	}
	if s.NChildren = int64(len(children)); len(children) > 0 {
		s.Children = sliceAddress(entries)
	}
	return s, counts
}
