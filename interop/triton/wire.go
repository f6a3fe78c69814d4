package triton

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// The functions put... append a field of a protobuf message. As in any proto3 message, zeros are left out.

func putBytes[T string | []byte](b []byte, field protowire.Number, v T) []byte {
	if len(v) == 0 {
		return b
	}
	return putMessage(b, field, []byte(v))
}

func putInt(b []byte, field protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	b = protowire.AppendTag(b, field, protowire.VarintType)
	return protowire.AppendVarint(b, uint64(v))
}

// putMessage keeps a message that is empty.
func putMessage(b []byte, field protowire.Number, message []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendBytes(b, message)
}

func putShape(b []byte, field protowire.Number, shape []int64) []byte {
	var packed []byte
	for _, n := range shape {
		packed = protowire.AppendVarint(packed, uint64(n))
	}
	return putBytes(b, field, packed)
}

// A field is one of a message that was received.
type field struct {
	number   protowire.Number
	kind     protowire.Type
	number64 uint64 // of a varint
	bytes    []byte // of strings, bytes, messages and packed numbers; part of the message
}

// eachField calls f for each field of a message. Types of fields that f does not know are skipped.
func eachField(name string, message []byte, f func(field) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return malformed(name, protowire.ParseError(n))
		}
		message = message[n:]
		one := field{number: number, kind: kind}
		switch kind {
		case protowire.VarintType:
			one.number64, n = protowire.ConsumeVarint(message)
		case protowire.BytesType:
			one.bytes, n = protowire.ConsumeBytes(message)
		default:
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return malformed(name, protowire.ParseError(n))
		}
		message = message[n:]
		if err := f(one); err != nil {
			return err
		}
	}
	return nil
}

func malformed(name string, err error) error {
	return fielderr.Invalid(opTriton, name, fielderr.Text(err.Error()), "a message of protobuf")
}

// shape appends the numbers of a repeated field, packed or not.
func (f field) shape(name string, shape []int64) ([]int64, error) {
	if f.kind == protowire.VarintType {
		return append(shape, int64(f.number64)), nil
	}
	for packed := f.bytes; len(packed) > 0; {
		v, n := protowire.ConsumeVarint(packed)
		if n < 0 {
			return nil, malformed(name, protowire.ParseError(n))
		}
		shape, packed = append(shape, int64(v)), packed[n:]
	}
	return shape, nil
}
