package hostread

import (
	"bytes"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// ViewFits reports whether a view is within a buffer; CheckView says why not.
func ViewFits(v *arrow.ViewHeader, sizes []int64) bool {
	size := v.Len()
	if size < 0 || v.IsInline() {
		return size >= 0
	}
	index, off := int64(v.BufferIndex()), int64(v.BufferOffset())
	return index >= 0 && index < int64(len(sizes)) && off >= 0 && off <= sizes[index]-int64(size)
}

// CheckView checks that a view is within a buffer.
func CheckView(v *arrow.ViewHeader, sizes []int64) error {
	size := v.Len()
	if size < 0 {
		return fielderr.Invalid(fielderr.OpValidate, "length", size, "at least 0")
	}
	if v.IsInline() {
		return nil
	}
	index, off := int64(v.BufferIndex()), int64(v.BufferOffset())
	if index < 0 || index >= int64(len(sizes)) {
		return fielderr.Invalid(fielderr.OpValidate, "buffer_index", index, fmt.Sprintf("0 to %d", len(sizes)-1))
	}
	if off < 0 || off > sizes[index]-int64(size) {
		return fielderr.Invalid(fielderr.OpValidate, "offset", off, fmt.Sprintf("0 to %d", sizes[index]-int64(size)))
	}
	return nil
}

// ViewValue checks a view and returns its bytes.
func ViewValue(n *tree.Node, v *arrow.ViewHeader, sizes []int64) ([]byte, error) {
	if err := CheckView(v, sizes); err != nil {
		return nil, err
	}
	if v.IsInline() {
		return v.InlineBytes(), nil
	}
	value := abi.Slice[byte](n.Buffers[2+v.BufferIndex()]+uintptr(v.BufferOffset()), v.Len())
	if prefix := v.Prefix(); !bytes.HasPrefix(value, prefix[:]) {
		return nil, fielderr.Invalid(fielderr.OpValidate, "prefix", prefix, fmt.Sprintf("%v, the first bytes of the value", value[:len(prefix)]))
	}
	return value, nil
}
