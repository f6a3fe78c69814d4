package share

import (
	"fmt"
	"strings"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

// path names a part of a ticket: "columns[3].children[0]".
type path []step

// step is a field; of a list, its i-th.
type step struct {
	name string
	i    int // -1: of no list
}

func (p path) String() string {
	var b strings.Builder
	for i, s := range p {
		if i > 0 {
			b.WriteByte('.')
		}
		b.WriteString(s.name)
		if s.i >= 0 {
			fmt.Fprintf(&b, "[%d]", s.i)
		}
	}
	return b.String()
}

// in is the path of a part of this one.
func (p path) in(name string, i int) path { return append(p, step{name, i}) }

// bad is the error for a field of this part.
func (p path) bad(name string, got, want any) error {
	return badTicket(p.in(name, -1).String(), got, want)
}

// field is the value of a field: a number or bytes.
type field struct {
	number uint64
	bytes  []byte
}

// decoder keeps the first error.
type decoder struct {
	at   path
	room int // bytes of memory that it may still take
	err  error
}

func (d *decoder) fail(name string, got, want any) {
	if d.err == nil {
		d.err = d.at.bad(name, got, want)
	}
}

// in decodes a part.
func (d *decoder) in(name string, i int, do func()) {
	d.at = d.at.in(name, i)
	do()
	d.at = d.at[:len(d.at)-1]
}

// message calls do for each field of a message. Fields of other kinds, of later versions, are left out.
func (d *decoder) message(b []byte, do func(protowire.Number, field)) {
	for len(b) > 0 && d.err == nil {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			d.fail("a field", protowire.ParseError(size), "a tag")
			return
		}
		b = b[size:]
		var f field
		switch kind {
		case protowire.VarintType:
			f.number, size = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			f.bytes, size = protowire.ConsumeBytes(b)
		default:
			n, size = 0, protowire.ConsumeFieldValue(n, kind, b)
		}
		if size < 0 {
			d.fail(fmt.Sprintf("field %d", n), protowire.ParseError(size), "a value")
			return
		}
		b = b[size:]
		if n != 0 {
			do(n, f)
		}
	}
}

// fixed copies bytes of a known number.
func (d *decoder) fixed(to []byte, f field, name string) {
	if len(f.bytes) != len(to) {
		d.fail(name, fmt.Sprintf("%d bytes", len(f.bytes)), len(to))
		return
	}
	copy(to, f.bytes)
}

// pay reports whether there is room for n values of this size, and takes it.
func (d *decoder) pay(n int, size uintptr) bool {
	if d.room -= n * int(size); d.room < 0 && d.err == nil {
		d.err = fmt.Errorf("share: ticket: %s: more columns and buffers than a ticket of so many bytes has: %w", d.at, ErrBadTicket)
	}
	return d.err == nil
}

// reserve makes a list for the fields of this number that a message has.
func reserve[T any](d *decoder, message []byte, number protowire.Number) []T {
	n := 0
	d.message(message, func(m protowire.Number, _ field) {
		if m == number {
			n++
		}
	})
	var zero T
	if n == 0 || !d.pay(n, unsafe.Sizeof(zero)) {
		return nil
	}
	return make([]T, 0, n)
}
