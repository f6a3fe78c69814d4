package protofield

import "google.golang.org/protobuf/encoding/protowire"

// AppendBytes appends a string or bytes. As in any proto3 message, an empty value is left out.
func AppendBytes[T ~string | ~[]byte](b []byte, n Number, v T) []byte {
	if len(v) == 0 {
		return b
	}
	return AppendMessage(b, n, []byte(v))
}

// AppendMessage appends a message, or an element of a repeated field, even if it is empty.
func AppendMessage(b []byte, n Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), message)
}

// AppendInt appends an integer of the types int32, int64, uint32, uint64 or an enumeration, unless it is zero.
func AppendInt[T ~int | ~int32 | ~int64 | ~uint32 | ~uint64](b []byte, n Number, v T) []byte {
	if v == 0 {
		return b
	}
	return AppendChoice(b, n, v)
}

// AppendChoice appends an integer that is a member of a oneof, even if it is zero: it says which member is there.
func AppendChoice[T ~int | ~int32 | ~int64 | ~uint32 | ~uint64](b []byte, n Number, v T) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(v))
}

// AppendSint appends an integer of the type sint64, unless it is zero.
func AppendSint(b []byte, n Number, v int64) []byte {
	return AppendInt(b, n, protowire.EncodeZigZag(v))
}

// AppendInts appends a packed repeated field of int64, unless it is empty.
func AppendInts(b []byte, n Number, values []int64) []byte {
	var packed []byte
	for _, v := range values {
		packed = protowire.AppendVarint(packed, uint64(v))
	}
	return AppendBytes(b, n, packed)
}
