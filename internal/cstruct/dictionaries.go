package cstruct

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// checkDictionary checks that the offsets of all binary and utf8 arrays in the values of a dictionary
// end inside their bytes. arrow-go checks that when it makes an array, but it makes the values of a
// dictionary only when a program asks for them; copies and validation read them before. The memory is
// of a wrapped array, so the CPU can access it.
func checkDictionary(op string, values arrow.ArrayData) error {
	if err := checkEnd(op, values); err != nil {
		return err
	}
	for i, child := range values.Children() {
		if err := checkDictionary(op, child); err != nil {
			return fielderr.Within(fielderr.Child(i), err)
		}
	}
	return nil // a dictionary below is checked where it is wrapped
}

// checkEnd checks the last offset, which is the largest if they ascend. The buffer of the offsets is
// large enough, or the array is not accepted for another reason.
func checkEnd(op string, d arrow.ArrayData) error {
	_, l := layout.Of(d.DataType())
	width := 0
	switch l.Kind {
	case layout.Binary32:
		width = 4
	case layout.Binary64:
		width = 8
	}
	if width == 0 || d.Len() == 0 || len(d.Buffers()) < 3 {
		return nil
	}
	offsets, at := d.Buffers()[1], (d.Offset()+d.Len())*width
	if offsets == nil || offsets.Len() < at+width {
		return nil
	}
	var end int64
	if width == 4 {
		end = int64(int32(binary.NativeEndian.Uint32(offsets.Bytes()[at:])))
	} else {
		end = int64(binary.NativeEndian.Uint64(offsets.Bytes()[at:]))
	}
	size := 0
	if bytes := d.Buffers()[2]; bytes != nil {
		size = bytes.Len()
	}
	if end < 0 || end > int64(size) {
		return fielderr.Invalid(op, fmt.Sprintf("buffers[1][%d]", d.Offset()+d.Len()), end, fmt.Sprintf("0 to %d, the size of buffers[2]", size))
	}
	return nil
}
