package protofield

import (
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
)

// Reader reads a message that is in several pieces of memory, as grpc receives it, one field at a time.
type Reader struct {
	pieces [][]byte
	piece  []byte // the rest of the current piece
	left   int    // the rest of the message, in bytes
	value  int    // the rest of the current field's value, in bytes
}

// NewReader returns a reader of the message.
func NewReader(pieces [][]byte) *Reader {
	r := new(Reader)
	r.Reset(pieces)
	return r
}

// Reset makes r a reader of another message.
func (r *Reader) Reset(pieces [][]byte) {
	*r = Reader{pieces: pieces}
	for _, p := range pieces {
		r.left += len(p)
	}
}

// Next advances to the next field whose value is bytes, a string or a message, and returns its number and size. It skips what
// Read has not read of the field before, and fields of other types. At the end of the message the error is io.EOF.
func (r *Reader) Next() (n Number, size int, err error) {
	for {
		f, kind, err := r.field()
		if err != nil || kind == protowire.BytesType {
			return f.Number, r.value, err
		}
	}
}

// Read copies the next len(to) bytes of the field's value, or fewer at its end, and returns how many it copied. The error is
// io.EOF if none are left.
func (r *Reader) Read(to []byte) (n int, err error) {
	if r.value == 0 && len(to) > 0 {
		return 0, io.EOF
	}
	to = to[:min(len(to), r.value)]
	for n < len(to) {
		r.fill()
		k := copy(to[n:], r.piece)
		n, r.piece = n+k, r.piece[k:]
	}
	r.left, r.value = r.left-n, r.value-n
	return n, nil
}

// Value returns the field's value, which was not read, in the pieces of the message.
func (r *Reader) Value() (pieces [][]byte) {
	for r.value > 0 {
		r.fill()
		n := min(len(r.piece), r.value)
		pieces = append(pieces, r.piece[:n:n])
		r.piece, r.left, r.value = r.piece[n:], r.left-n, r.value-n
	}
	return pieces
}

// field reads the next field, but for the value of one whose value is bytes.
func (r *Reader) field() (f Field, kind protowire.Type, err error) {
	r.skip()
	if r.left == 0 {
		return f, 0, io.EOF
	}
	tag, err := r.varint()
	if err != nil {
		return f, 0, err
	}
	f.Number, kind = protowire.DecodeTag(tag)
	if f.Number < protowire.MinValidNumber {
		return f, 0, errors.New("a field has the number 0, or one that is too large")
	}
	var size uint64
	switch kind {
	case protowire.VarintType:
		f.Int, err = r.varint()
	case protowire.Fixed32Type:
		size = 4
	case protowire.Fixed64Type:
		size = 8
	case protowire.BytesType:
		size, err = r.varint()
	default:
		return f, 0, fmt.Errorf("field %d has the wire type %d, which no message of proto3 has", f.Number, kind)
	}
	if err == nil && size > uint64(r.left) {
		err = fmt.Errorf("field %d is cut off: of its %d bytes, %d are left", f.Number, size, r.left)
	}
	r.value = int(min(size, uint64(r.left)))
	return f, kind, err
}

// skip skips the rest of the field's value.
func (r *Reader) skip() {
	r.left -= r.value
	for r.value > 0 {
		r.fill()
		k := min(r.value, len(r.piece))
		r.piece, r.value = r.piece[k:], r.value-k
	}
}

// fill advances to the next piece that is not empty, if the current one has been read.
func (r *Reader) fill() {
	for len(r.piece) == 0 && len(r.pieces) > 0 {
		r.piece, r.pieces = r.pieces[0], r.pieces[1:]
	}
}

// errVarint reports a number of a message that cannot be read.
var errVarint = errors.New("a number is cut off or too large")

func (r *Reader) varint() (v uint64, err error) {
	for shift := uint(0); shift < 64 && r.left > 0; shift += 7 {
		r.fill()
		b := r.piece[0]
		r.piece, r.left = r.piece[1:], r.left-1
		if shift == 63 && b > 1 {
			break
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v, nil
		}
	}
	return 0, errVarint
}
