// Package cpeer is the other side of the interface, written in C: release
// callbacks that count, a thread that Go has never seen, and a producer that
// does the least work possible. It is for tests (cgo is not allowed in _test.go files) and no part of the library.
package cpeer

// #cgo !windows LDFLAGS: -lpthread
// #cgo windows LDFLAGS: -Wl,-Bstatic -lwinpthread -Wl,-Bdynamic
// #include <stdlib.h>
// #include "cpeer.h"
import "C"

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// C addresses of release callbacks that add one to the int64 at private_data and
// mark the struct released, and look at nothing else.
var (
	CountArrayRelease  = uintptr(C.cpeer_count_array_release)
	CountSchemaRelease = uintptr(C.cpeer_count_schema_release)
)

// ReleaseOnThread calls the release callback of a on a new C thread and waits for it.
func ReleaseOnThread(a *abi.ArrowArray) error {
	if errno := C.cpeer_release_array_on_thread((*C.struct_ArrowArray)(unsafe.Pointer(a))); errno != 0 {
		return fmt.Errorf("cpeer: start a thread: %w", syscall.Errno(errno))
	}
	return nil
}

// ReleaseTwice calls the release callback of a, and once more although a is released then.
func ReleaseTwice(a *abi.ArrowArray) {
	C.cpeer_release_array_twice((*C.struct_ArrowArray)(unsafe.Pointer(a)))
}

// ReleaseSchemaTwice is ReleaseTwice for a schema.
func ReleaseSchemaTwice(s *abi.ArrowSchema) {
	C.cpeer_release_schema_twice((*C.struct_ArrowSchema)(unsafe.Pointer(s)))
}

// CallOnThread calls the C function at f with two pointers, on a new C thread, and returns its
// result. The pointers may be to Go memory that holds none.
func CallOnThread(f, a, b uintptr) int {
	var result C.int
	fn := (*[0]byte)(abi.Pointer(f))
	if errno := C.cpeer_call_on_thread(fn, abi.Pointer(a), abi.Pointer(b), &result); errno != 0 {
		panic(fmt.Sprintf("cpeer: start a thread: %v", syscall.Errno(errno)))
	}
	return int(result)
}

// CallForPointer calls the C function at f with a pointer and returns the pointer that it
// returns.
func CallForPointer(f, a uintptr) uintptr {
	fn := (*[0]byte)(abi.Pointer(f))
	return uintptr(C.cpeer_call_for_pointer(fn, abi.Pointer(a)))
}

// IsPinned reports whether C may keep this address: it is not memory of the Go heap, or that memory
// is pinned. It relies on cgo, which panics when Go memory that is passed to C holds a pointer to
// Go memory that is not pinned.
func IsPinned(addr uintptr) (pinned bool) {
	defer func() { pinned = recover() == nil }()
	cell := []unsafe.Pointer{abi.Pointer(addr)}
	C.cpeer_look_at(&cell[0])
	return
}

// Node describes an array as a C program would; see [NewTree].
type Node struct {
	Length, NullCount int64
	Buffers           []uintptr // at most 4
	Children          []Node
}

// Tree is a Node in C memory.
type Tree struct{ root *C.struct_cpeer_node }

// NewTree copies n and all below it to C memory. Free it.
func NewTree(n Node) Tree {
	t := Tree{root: newNodes(1)}
	fill(t.root, n)
	return t
}

func newNodes(n int) *C.struct_cpeer_node {
	return (*C.struct_cpeer_node)(C.calloc(C.size_t(n), C.sizeof_struct_cpeer_node))
}

func fill(c *C.struct_cpeer_node, n Node) {
	c.length, c.null_count = C.int64_t(n.Length), C.int64_t(n.NullCount)
	c.n_buffers, c.n_children = C.int64_t(len(n.Buffers)), C.int64_t(len(n.Children))
	for i, b := range n.Buffers {
		c.buffers[i] = abi.Pointer(b)
	}
	if len(n.Children) == 0 {
		return
	}
	c.children = newNodes(len(n.Children))
	children := unsafe.Slice(c.children, len(n.Children))
	for i := range children {
		fill(&children[i], n.Children[i])
	}
}

// Free frees the tree's memory.
func (t Tree) Free() { free(t.root, 1) }

func free(nodes *C.struct_cpeer_node, count int) {
	for _, n := range unsafe.Slice(nodes, count) {
		if n.children != nil {
			free(n.children, int(n.n_children))
		}
	}
	C.free(unsafe.Pointer(nodes))
}

// Export fills *out with the tree, with one malloc.
func (t Tree) Export(out *abi.ArrowDeviceArray) {
	if C.cpeer_floor_export(t.root, (*C.struct_ArrowDeviceArray)(unsafe.Pointer(out))) != 0 {
		panic("cpeer: out of memory")
	}
}
