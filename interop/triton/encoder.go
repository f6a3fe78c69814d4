package triton

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/memcopy"
)

// lengthSize is the bytes of the length before each value of BYTES, a little-endian uint32.
const lengthSize = 4

// An encoder has the elements of a column in memory of the host, and writes them as Triton has them. It holds the memory until
// release.
type encoder struct {
	array arrow.Array
	value func(i int) (v []byte, ok bool) // of BYTES; nil for BOOL. It is not ok if its array has no such bytes
	size  int64
}

// newEncoder returns the encoder of an array without nulls, which it copies to the host if the CPU cannot access it.
func newEncoder(ctx context.Context, values *cdevice.Array, of datatype) (*encoder, error) {
	dev, err := values.Device()
	if err != nil {
		return nil, err
	}
	e := &encoder{}
	if dev.CPUAccessible() {
		e.array, err = values.HostView(ctx)
	} else {
		e.array, err = values.CopyToHost(ctx, nil)
	}
	if err != nil {
		return nil, err
	}
	if of.form == bits {
		e.size = int64(e.array.Len())
		return e, nil
	}
	e.value = valuesOf(e.array.Data(), of.arrow)
	if err := e.measure(&pace{ctx: ctx}); err != nil {
		e.release()
		return nil, err
	}
	return e, nil
}

func (e *encoder) release() { e.array.Release() }

// measure sets the size of the values and their lengths.
func (e *encoder) measure(p *pace) error {
	for i := range e.array.Len() {
		if err := p.spend(lengthSize); err != nil {
			return err
		}
		v, ok := e.value(i)
		if !ok {
			return errOutside(i)
		}
		if len(v) > math.MaxUint32 {
			return fielderr.Invalid(opRegion, row(i), fielderr.Text(fmt.Sprintf("%d bytes", len(v))), "a length that is a uint32")
		}
		e.size += lengthSize + int64(len(v))
	}
	return nil
}

// encode writes the elements to memory of their size.
func (e *encoder) encode(ctx context.Context, to []byte) error {
	p := &pace{ctx: ctx}
	return memcopy.Guard(func() error {
		if e.value == nil {
			return e.encodeBits(p, to)
		}
		for i := range e.array.Len() {
			v, ok := e.value(i)
			if !ok || lengthSize+len(v) > len(to) { // the program has changed the array
				return errOutside(i)
			}
			binary.LittleEndian.PutUint32(to, uint32(len(v)))
			if err := p.copy(to[lengthSize:], v); err != nil {
				return err
			}
			to = to[lengthSize+len(v):]
		}
		return nil
	})
}

func (e *encoder) encodeBits(p *pace, to []byte) error {
	data := e.array.Data()
	for i := range to {
		to[i] = 0
		if bitutil.BitIsSet(data.Buffers()[1].Bytes(), data.Offset()+i) {
			to[i] = 1
		}
		if err := p.spend(1); err != nil {
			return err
		}
	}
	return nil
}

// valuesOf returns the function that reads the values of an array of bytes or text, without copying them.
func valuesOf(data arrow.ArrayData, dt arrow.DataType) func(int) ([]byte, bool) {
	switch dt.ID() {
	case arrow.STRING, arrow.BINARY:
		return valuesBetween[int32](data)
	case arrow.LARGE_STRING, arrow.LARGE_BINARY:
		return valuesBetween[int64](data)
	}
	return valuesOfViews(data)
}

func valuesBetween[O int32 | int64](data arrow.ArrayData) func(int) ([]byte, bool) {
	offsets, bytes := elementsOf[O](data), bytesOf(data, 2)
	return func(i int) ([]byte, bool) { return cut(bytes, int64(offsets[i]), int64(offsets[i+1])) }
}

func valuesOfViews(data arrow.ArrayData) func(int) ([]byte, bool) {
	views := elementsOf[arrow.ViewHeader](data)
	return func(i int) ([]byte, bool) {
		v := &views[i]
		k := int64(v.BufferIndex()) + 2
		switch {
		case v.Len() < 0:
			return nil, false
		case v.IsInline():
			return v.InlineBytes(), true
		case k < 2 || k >= int64(len(data.Buffers())):
			return nil, false
		}
		from := int64(v.BufferOffset())
		return cut(bytesOf(data, int(k)), from, from+int64(v.Len()))
	}
}

// elementsOf returns the elements of the first buffer behind the validity bitmap from the array's offset on.
func elementsOf[T arrow.FixedWidthType | arrow.ViewHeader](data arrow.ArrayData) []T {
	all := arrow.GetData[T](bytesOf(data, 1))
	return all[min(data.Offset(), len(all)):]
}

func bytesOf(data arrow.ArrayData, buffer int) []byte {
	if b := data.Buffers()[buffer]; b != nil {
		return b.Bytes()
	}
	return nil
}

// cut returns the bytes between two offsets, or false if they are not there.
func cut(bytes []byte, from, to int64) ([]byte, bool) {
	if from < 0 || to < from || to > int64(len(bytes)) {
		return nil, false
	}
	return bytes[from:to], true
}

func errOutside(i int) error {
	return fielderr.Invalid(opRegion, row(i), fielderr.Text("outside of the data"), "offsets in order and within the data")
}

func row(i int) string { return fmt.Sprintf("rows[%d]", i) }

// pace checks a context while bytes are read or written.
type pace struct {
	ctx  context.Context
	left int
}

// checkedAfter is the bytes between two checks, which take some milliseconds.
const checkedAfter = 4 << 20

func (p *pace) spend(bytes int) error {
	if p.left -= bytes; p.left > 0 {
		return nil
	}
	p.left = checkedAfter
	return p.ctx.Err()
}

// copy copies bytes in pieces: the runtime cannot interrupt a copy.
func (p *pace) copy(to, from []byte) error {
	const piece = 256 << 10
	for len(from) > piece {
		copy(to, from[:piece])
		to, from = to[piece:], from[piece:]
		if err := p.spend(piece); err != nil {
			return err
		}
	}
	copy(to, from)
	return p.spend(lengthSize + len(from))
}
