package fielderr

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

// Hex returns an address as errors print it.
func Hex(addr uintptr) string { return fmt.Sprintf("%#x", addr) }

// CheckAligned returns an error unless an address is a multiple of the size of the elements there: a GPU ends the context of a kernel
// that reads others. instead is the way to an address that is one.
func CheckAligned(op, field string, addr uintptr, size int64, instead string) error {
	if addr%uintptr(size) == 0 {
		return nil
	}
	want := fmt.Sprintf("an address that is a multiple of %d", size)
	return New(op, field, Hex(addr), want, fmt.Errorf("%s: %w", instead, arrow.ErrInvalid))
}
