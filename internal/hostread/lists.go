package hostread

import (
	"fmt"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// CheckList checks that list i lies within a child of limit elements.
func CheckList[T OffsetInt](i int, offset, size T, limit int64) error {
	off, count := int64(offset), int64(size)
	if off < 0 || off > limit {
		return fielderr.Invalid(fielderr.OpValidate, fmt.Sprintf("offsets[%d]", i), off, fmt.Sprintf("0 to %d", limit))
	}
	if count < 0 || count > limit-off {
		return fielderr.Invalid(fielderr.OpValidate, fmt.Sprintf("sizes[%d]", i), count, fmt.Sprintf("0 to %d", limit-off))
	}
	return nil
}
