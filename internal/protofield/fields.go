// Package protofield appends and reads the fields of protocol buffer messages that are known by number, without
// generated code. It reads messages of other processes: nothing that they contain makes it panic, and a Budget bounds
// the memory that a caller allocates for their lists.
package protofield

import (
	"errors"
	"io"
	"iter"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

// Number is the number of a field.
type Number = protowire.Number

// Field is a field of a message that was received: an integer, or bytes.
type Field struct {
	Number Number
	Int    uint64 // the value of an integer field
	Bytes  []byte // the value of a string, bytes, message or packed field, which is part of the message; nil for an integer
}

// Fields yields the fields of a message in their order. Fields of fixed size, which no message read by this package has, are
// skipped. An error ends the iteration.
func Fields(message []byte) iter.Seq2[Field, error] {
	return func(yield func(Field, error) bool) {
		r := &Reader{piece: message, left: len(message)}
		for {
			f, kind, err := r.field()
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(Field{}, err)
				return
			}
			if kind == protowire.BytesType {
				f.Bytes = r.piece[:r.value:r.value]
			}
			if (kind == protowire.BytesType || kind == protowire.VarintType) && !yield(f, nil) {
				return
			}
		}
	}
}

// Sint returns the value of a field of the type sint64.
func (f Field) Sint() int64 { return protowire.DecodeZigZag(f.Int) }

// AppendTo appends the values of a repeated int64 field, packed or not, to a list, whose memory the budget pays.
func (f Field) AppendTo(list []int64, budget *Budget) ([]int64, error) {
	if f.Bytes == nil {
		return append(list, int64(f.Int)), budget.Spend(1, unsafe.Sizeof(f.Int))
	}
	n := 0
	for _, b := range f.Bytes {
		if b < 0x80 { // the last byte of a value
			n++
		}
	}
	if err := budget.Spend(n, unsafe.Sizeof(f.Int)); err != nil {
		return nil, err
	}
	if list == nil {
		list = make([]int64, 0, n)
	}
	r := &Reader{piece: f.Bytes, left: len(f.Bytes)}
	for r.left > 0 {
		v, err := r.varint()
		if err != nil {
			return nil, err
		}
		list = append(list, int64(v))
	}
	return list, nil
}

// Budget is the memory, in bytes, that the lists of a message may still take. A short message can have many empty
// elements, each of which takes far more memory than the two bytes of the message.
type Budget int

// ErrBudget reports a message whose lists take more memory than its Budget.
var ErrBudget = errors.New("more elements than a message of so many bytes has")

// Spend takes the memory of n elements of the size from the budget.
func (b *Budget) Spend(n int, size uintptr) error {
	if *b -= Budget(n) * Budget(size); *b < 0 {
		return ErrBudget
	}
	return nil
}

// List returns an empty list with room for the fields of the number that a message has. It counts the fields up to the
// first malformed one, at which a reader of the message ends, too.
func List[T any](message []byte, n Number, budget *Budget) ([]T, error) {
	count := 0
	for f, err := range Fields(message) {
		if err == nil && f.Number == n {
			count++
		}
	}
	var zero T
	if err := budget.Spend(count, unsafe.Sizeof(zero)); err != nil || count == 0 {
		return nil, err
	}
	return make([]T, 0, count), nil
}
