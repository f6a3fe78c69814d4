package triton

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/memcopy"
)

// A decoder makes an array of an output of BOOL or BYTES in memory of the host. It trusts nothing that a server has written, and
// reads each length once: the server may write meanwhile.
type decoder struct {
	of     datatype
	count  int64  // elements
	perRow int64  // elements of a row
	from   []byte // the memory of the output
	kept   []any  // the memory of the array, which it needs as long as it is used
}

func (d *decoder) decode() (a cdevice.ArrayData, err error) {
	err = memcopy.Guard(func() error { // another process can truncate the object
		switch d.of.arrow.ID() {
		case arrow.BOOL:
			a, err = d.bits()
		case arrow.STRING, arrow.BINARY:
			a, err = valuesIn[int32](d)
		case arrow.LARGE_STRING, arrow.LARGE_BINARY:
			a, err = valuesIn[int64](d)
		default:
			a, err = d.views()
		}
		return err
	})
	return a, err
}

// bits makes bits of bytes that are 0 or not.
func (d *decoder) bits() (cdevice.ArrayData, error) {
	bitmap := make([]byte, max(1, bitutil.BytesForBits(d.count)))
	for i, b := range d.from[:d.count] {
		if b != 0 {
			bitutil.SetBit(bitmap, i)
		}
	}
	return d.array(memoryOf(d, bitmap)), nil
}

// valuesIn copies the values to one buffer.
func valuesIn[O int32 | int64](d *decoder) (cdevice.ArrayData, error) {
	offsets := make([]O, d.count+1)
	err := d.walk(func(i int64, v []byte) error {
		offsets[i+1] = offsets[i] + O(len(v))
		return nil
	})
	if err != nil {
		return cdevice.ArrayData{}, err
	}
	copied := make([]byte, max(1, offsets[d.count]))
	for i := range d.count {
		from, to := int64(offsets[i]), int64(offsets[i+1])
		v := copied[from:to]
		copy(v, d.from[from+(i+1)*lengthSize:])
		if err := d.checkText(i, v); err != nil {
			return cdevice.ArrayData{}, err
		}
	}
	return d.array(memoryOf(d, offsets), memoryOf(d, copied)), nil
}

// views makes views of the values, without copying those of more than 12 bytes.
func (d *decoder) views() (cdevice.ArrayData, error) {
	views := make([]arrow.ViewHeader, max(1, d.count))
	end := int32(0)
	err := d.walk(func(i int64, v []byte) error {
		end += lengthSize
		if views[i].SetBytes(v); !views[i].IsInline() {
			views[i].SetIndexOffset(0, end)
		}
		end += int32(len(v))
		return d.checkText(i, v)
	})
	a := d.array(memoryOf(d, views), memoryOf(d, d.from))
	a.ViewSizes = []int64{int64(len(d.from))}
	return a, err
}

// walk calls do with the values in their order.
func (d *decoder) walk(do func(i int64, v []byte) error) error {
	rest := d.from
	for i := range d.count {
		if len(rest) < lengthSize { // mutant: never
			return fielderr.Invalid(opBatch, d.row(i), fielderr.Text("behind the end of the tensor"), fmt.Sprintf("%d values", d.count))
		}
		n := int64(binary.LittleEndian.Uint32(rest))
		if rest = rest[lengthSize:]; n > int64(len(rest)) { // mutant: never
			return fielderr.Invalid(opBatch, d.row(i)+".length", n, fmt.Sprintf("at most the %d bytes that follow", len(rest)))
		}
		if err := do(i, rest[:n]); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// checkText returns an error if a value of a column of text is not UTF-8.
func (d *decoder) checkText(i int64, v []byte) error {
	switch d.of.arrow.ID() {
	case arrow.STRING, arrow.LARGE_STRING, arrow.STRING_VIEW:
		if !utf8.Valid(v) {
			return fielderr.Invalid(opBatch, d.row(i), fielderr.Text(quoted(string(v))), "UTF-8, or a column of binary")
		}
	}
	return nil
}

func (d *decoder) row(i int64) string { return row(int(i / d.perRow)) }

func (d *decoder) array(buffers ...device.Ptr) cdevice.ArrayData {
	return cdevice.ArrayData{Length: d.count, Buffers: append([]device.Ptr{0}, buffers...)}
}

// memoryOf returns the address of memory, which the decoder then holds.
func memoryOf[T any](d *decoder, memory []T) device.Ptr {
	d.kept = append(d.kept, memory)
	return device.Ptr(uintptr(unsafe.Pointer(unsafe.SliceData(memory))))
}
