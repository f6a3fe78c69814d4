// Package heap gives tests the addresses of Go memory.
package heap

import (
	"sync/atomic"
	"unsafe"
)

var escaped atomic.Pointer[byte]

// Address returns the address of *p, which is on the heap because of that. Without it, the compiler may leave *p on the stack,
// also the elements of a short slice, and the stack moves: an address that is a number does not count as a use. Nor does
// it keep *p alive: see [runtime.KeepAlive].
func Address[T any](p *T) uintptr {
	escaped.Store((*byte)(unsafe.Pointer(p)))
	escaped.Store(nil)
	return uintptr(unsafe.Pointer(p))
}

// AddressOf returns the address of the elements of s, or 0 without any, which are on the heap because of that.
func AddressOf[T any](s []T) uintptr { return Address(unsafe.SliceData(s)) }
