// Package memcopy copies memory of the host without holding up the rest of the program.
package memcopy

import "unsafe"

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

func bytesAt(addr uintptr, size int64) []byte {
	if size == 0 {
		return nil
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&addr)), size)
}
