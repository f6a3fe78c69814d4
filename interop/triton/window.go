package triton

import (
	"context"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

// A window is the memory of a system region as an allocator of one allocation, so that a copy goes right to it.
type window struct {
	bytes []byte
	users atomic.Int32 // the caller of newWindow, until drop, and the allocation, until Free
	last  func()       // called when the last user has ended
}

func newWindow(bytes []byte, last func()) *window {
	w := &window{bytes: bytes, last: last}
	w.users.Store(1)
	return w
}

// TryAllocate returns the beginning of the memory. Package cdevice calls it in place of Allocate.
func (w *window) TryAllocate(_ context.Context, size int) ([]byte, error) {
	if size > len(w.bytes) {
		return nil, fmt.Errorf("triton: allocate %d bytes of %d", size, len(w.bytes))
	}
	w.users.Add(1)
	return w.bytes[:size:size], nil
}

// Allocate is TryAllocate, with its error as a panic.
func (w *window) Allocate(size int) []byte {
	b, err := w.TryAllocate(context.Background(), size)
	if err != nil {
		panic(err)
	}
	return b
}

// Reallocate panics: nothing changes the size of a copy.
func (w *window) Reallocate(int, []byte) []byte { panic("triton: a copy has a fixed size") }

// Free ends the allocation.
func (w *window) Free([]byte) { w.drop() }

func (w *window) drop() {
	if w.users.Add(-1) == 0 {
		w.last()
	}
}

// offset returns where a part of the allocation begins.
func (w *window) offset(part *memory.Buffer) int64 {
	at := func(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
	return int64(at(part.Bytes()) - at(w.bytes))
}
