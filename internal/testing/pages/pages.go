// Package pages maps memory of the system for tests: zeros that take no memory until they are written to, at addresses that
// the Go runtime does not know.
package pages

import "os"

// Access is how mapped memory may be accessed.
type Access int

const (
	None Access = iota
	Read
	ReadWrite
)

// Map maps size bytes, which are valid until unmap is called, once.
func Map(size int, access Access) (b []byte, unmap func() error, err error) {
	return mapped(size, access)
}

// MapFile maps the first size bytes of a file for reading. The file may be closed before unmap is called.
func MapFile(f *os.File, size int) (b []byte, unmap func() error, err error) {
	return mappedFile(f, size)
}
