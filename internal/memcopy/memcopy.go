// Package memcopy copies memory of the host without holding up the rest of the program.
package memcopy

import (
	"fmt"
	"runtime/debug"
	"unsafe"
)

const (
	// piece is the most that is copied at a stretch: the runtime cannot interrupt a copy of memory, and
	// a garbage collection that begins stops all goroutines until it is over.
	piece = 256 << 10
	// asked is how much is copied between two calls of between.
	asked = 16 * piece
)

// Copy copies size bytes between addresses of the host, which may overlap. It calls between, unless
// that is nil, after every 4 MiB that more bytes follow, and ends with its error.
func Copy(to, from uintptr, size int64, between func() error) error {
	if to-from < uintptr(size) { // the destination begins within the source: pieces would overwrite it
		copy(bytesAt(to, size), bytesAt(from, size))
		return nil
	}
	for done := int64(0); size > piece; {
		copy(bytesAt(to, piece), bytesAt(from, piece))
		to, from, size, done = to+piece, from+piece, size-piece, done+piece
		if between != nil && done%asked == 0 {
			if err := between(); err != nil {
				return err
			}
		}
	}
	copy(bytesAt(to, size), bytesAt(from, size))
	return nil
}

// Guard calls f, which copies memory. Where f accesses memory that is not there, it ends with an error:
// another part of the program may unmap memory at any time.
func Guard(f func() error) (err error) {
	before := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(before)
		switch v := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }:
			err = fmt.Errorf("memory at %#x cannot be accessed", v.Addr())
		default:
			panic(v)
		}
	}()
	return f()
}

// ReadByte reads the byte at an address, which must be in memory that the CPU can access. Inlined, a load whose result
// nothing uses would be left out.
//
//go:noinline
func ReadByte(addr uintptr) byte { return bytesAt(addr, 1)[0] }

// FirstPage ends where memory may begin. An access before it is a panic even under Guard.
const FirstPage = 4096

func bytesAt(addr uintptr, size int64) []byte {
	if size == 0 {
		return nil
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), size)
}
