package flight

import (
	"encoding/binary"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

// checkTexts checks that the offsets of all binary and utf8 arrays of a record batch end inside their
// values. arrow-go checks that of an array when it makes it, but makes the values of a dictionary only
// when they are asked for; copies take them before.
func checkTexts(rec arrow.RecordBatch) error {
	for i, column := range rec.Columns() {
		if err := checkText(column.Data()); err != nil {
			return &Error{fmt.Sprintf("RecordBatch.column[%d]", i), err.Error(), errInvalid}
		}
	}
	return nil
}

func checkText(d arrow.ArrayData) error {
	storage := d.DataType()
	if e, ok := storage.(arrow.ExtensionType); ok {
		storage = e.StorageType()
	}
	var err error
	switch storage.ID() {
	case arrow.BINARY, arrow.STRING:
		err = checkEnd(d, 4)
	case arrow.LARGE_BINARY, arrow.LARGE_STRING:
		err = checkEnd(d, 8)
	}
	if dictionary := d.Dictionary(); err == nil && dictionary != nil && storage.ID() == arrow.DICTIONARY {
		err = checkText(dictionary)
	}
	for _, child := range d.Children() {
		if err == nil {
			err = checkText(child)
		}
	}
	return err
}

// checkEnd checks the last offset, of so many bytes. It is the largest, if they ascend.
func checkEnd(d arrow.ArrayData, width int) error {
	if d.Len() == 0 {
		return nil
	}
	offsets, at := d.Buffers()[1], (d.Offset()+d.Len())*width
	if offsets == nil || offsets.Len() < at+width {
		return fmt.Errorf("less than %d offsets", d.Len()+1)
	}
	var end int64
	if width == 4 {
		end = int64(int32(binary.LittleEndian.Uint32(offsets.Bytes()[at:])))
	} else {
		end = int64(binary.LittleEndian.Uint64(offsets.Bytes()[at:]))
	}
	size := 0
	if values := d.Buffers()[2]; values != nil {
		size = values.Len()
	}
	if end < 0 || end > int64(size) {
		return fmt.Errorf("offsets end at %d in %d bytes of values", end, size)
	}
	return nil
}
