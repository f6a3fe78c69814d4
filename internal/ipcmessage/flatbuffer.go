package ipcmessage

import (
	"encoding/binary"
	"slices"
	"unsafe"
)

// flat is a FlatBuffers buffer whose offsets are not trusted. arrow-go does not check whether offsets and counts stay
// inside it, so it is read through once before. It keeps the first error, as a bufio.Scanner does; after an error, all
// fields are zero, and all vectors empty.
type flat struct {
	b []byte
	// left is how many bytes of tables, strings and vectors may still be visited. Offsets may lead to the same bytes any
	// number of times, which makes a few bytes a tree without end, of which a reader makes copies.
	left int
	err  error
}

// newFlat allows each byte twice: a sender may write a string once, and refer to it again.
func newFlat(b []byte) *flat { return &flat{b: b, left: 2 * len(b)} }

func (f *flat) fail(text string, args ...any) {
	if f.err == nil {
		f.err = errMetadata(text, args...)
	}
}

// visit counts bytes that a reader visits.
func (f *flat) visit(n int) {
	if f.left -= n; f.left < 0 {
		f.fail("more than its %d bytes", len(f.b))
	}
}

// table is a table of a flat. Without a vtable it has no fields.
type table struct {
	f      *flat
	at     int
	vtable []byte
}

func (f *flat) root() table {
	if len(f.b) < 4 {
		f.fail("%d bytes", len(f.b))
		return table{f: f}
	}
	return f.table(0)
}

// target returns the position that the offset at a position leads to, with four bytes behind it, or 0.
func (f *flat) target(at int) int {
	to := int64(at) + int64(binary.LittleEndian.Uint32(f.b[at:]))
	if to > int64(len(f.b)-4) {
		f.fail("an offset leads outside")
		return 0
	}
	return int(to)
}

// table returns the table that the offset at a position leads to.
func (f *flat) table(at int) table {
	pos := f.target(at)
	v := int64(pos) - int64(int32(binary.LittleEndian.Uint32(f.b[pos:])))
	if v < 0 || v > int64(len(f.b)-4) {
		f.fail("a table without a description")
		return table{f: f}
	}
	n := int(binary.LittleEndian.Uint16(f.b[v:]))
	if n < 4 || n%2 != 0 || int(v)+n > len(f.b) {
		f.fail("a table that lies outside")
		return table{f: f}
	}
	f.visit(4)
	return table{f, pos, f.b[v : int(v)+n]}
}

// field returns the position of a field of so many bytes, or 0 if the table does not have it. It ignores the size of the
// table, in its description: writers give the description of another table to one that ends elsewhere.
func (t table) field(slot, width int) int {
	i := 4 + 2*slot
	if t.f.err != nil || i+2 > len(t.vtable) {
		return 0
	}
	o := int(binary.LittleEndian.Uint16(t.vtable[i:]))
	if o == 0 {
		return 0
	}
	if t.at+o+width > len(t.f.b) {
		t.f.fail("a field that lies outside")
		return 0
	}
	return t.at + o
}

// number returns a field that is a number, or 0 if the table does not have it.
func number[T byte | int16 | int32 | int64](t table, slot int) (v T) {
	width := int(unsafe.Sizeof(v))
	at := t.field(slot, width)
	for i := 0; i < width && at > 0; i++ {
		v |= T(t.f.b[at+i]) << (8 * i)
	}
	return v
}

// numbers checks the fields of the first slots, which are numbers of so many bytes.
func (t table) numbers(widths ...int) {
	for slot, width := range widths {
		t.field(slot, width)
	}
}

// table returns the table of a field; ok is false if there is none.
func (t table) table(slot int) (sub table, ok bool) {
	at := t.field(slot, 4)
	if at == 0 {
		return table{f: t.f}, false
	}
	sub = t.f.table(at)
	return sub, t.f.err == nil
}

// vector returns the position and number of the elements of a vector, which are of so many bytes.
func (t table) vector(slot, width int) (at, n int) {
	field := t.field(slot, 4)
	if field == 0 {
		return 0, 0
	}
	pos := t.f.target(field)
	count := int64(binary.LittleEndian.Uint32(t.f.b[pos:]))
	size := count * int64(width)
	if size > int64(len(t.f.b)-pos-4) {
		t.f.fail("a vector of %d elements that lies outside", count)
	} else {
		t.f.visit(int(size))
	}
	if t.f.err != nil {
		return 0, 0
	}
	return pos + 4, int(count)
}

// words returns a vector whose elements are n numbers of 64 bits each, in the memory of list if that has enough.
func (t table) words(list []int64, slot, n int) []int64 {
	at, count := t.vector(slot, 8*n)
	list = slices.Grow(list[:0], n*count)[:n*count]
	for i := range list {
		list[i] = int64(binary.LittleEndian.Uint64(t.f.b[at+8*i:]))
	}
	return list
}

// text checks a string.
func (t table) text(slot int) { t.vector(slot, 1) }

// each calls do for each table of a vector, up to the first error.
func (t table) each(slot int, do func(table)) {
	at, n := t.vector(slot, 4)
	for i := range n {
		sub := t.f.table(at + 4*i)
		if t.f.err != nil {
			return
		}
		do(sub)
	}
}

// keyValues checks a vector of KeyValue tables, and returns how many it has.
func (t table) keyValues(slot int) (n int) {
	t.each(slot, func(kv table) {
		kv.text(0)
		kv.text(1)
		n++
	})
	return n
}
