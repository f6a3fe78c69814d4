package ipcmessage

import "encoding/binary"

// flat is a FlatBuffers buffer whose offsets are not trusted. arrow-go does not look whether offsets and counts stay
// inside it, so it is read through once before.
type flat struct {
	b []byte
	// left is how many bytes of tables, strings and vectors may still be visited. Offsets may lead to the same bytes any
	// number of times, which makes a few bytes a tree without end, of which a reader makes copies.
	left int
}

// newFlat allows each byte twice: a sender may write a string once, and refer to it again.
func newFlat(b []byte) *flat { return &flat{b, 2 * len(b)} }

// visit counts bytes that a reader visits.
func (f *flat) visit(n int) error {
	if f.left -= n; f.left < 0 {
		return errMetadata("more than its %d bytes", len(f.b))
	}
	return nil
}

// table is a table of a flat.
type table struct {
	f      *flat
	at     int
	vtable []byte
}

func (f *flat) root() (table, error) {
	if len(f.b) < 4 {
		return table{}, errMetadata("%d bytes", len(f.b))
	}
	return f.table(0)
}

// target returns the position that the offset at a position leads to. The offset lies inside.
func (f *flat) target(at int) (int, error) {
	to := int64(at) + int64(binary.LittleEndian.Uint32(f.b[at:]))
	if to > int64(len(f.b)-4) {
		return 0, errMetadata("an offset leads outside")
	}
	return int(to), nil
}

// table returns the table that the offset at a position leads to.
func (f *flat) table(at int) (table, error) {
	pos, err := f.target(at)
	if err != nil {
		return table{}, err
	}
	v := int64(pos) - int64(int32(binary.LittleEndian.Uint32(f.b[pos:])))
	if v < 0 || v > int64(len(f.b)-4) {
		return table{}, errMetadata("a table without a description")
	}
	n := int(binary.LittleEndian.Uint16(f.b[v:]))
	if n < 4 || n%2 != 0 || int(v)+n > len(f.b) {
		return table{}, errMetadata("a table that lies outside")
	}
	return table{f, pos, f.b[v : int(v)+n]}, f.visit(4)
}

// field returns the position of a field of so many bytes, or 0 if the table does not have it. The size of the table, in
// its description, is not looked at: writers give the description of another table to one that ends elsewhere.
func (t table) field(slot, width int) (int, error) {
	i := 4 + 2*slot
	if t.f == nil || i+2 > len(t.vtable) {
		return 0, nil
	}
	o := int(binary.LittleEndian.Uint16(t.vtable[i:]))
	if o == 0 {
		return 0, nil
	}
	if t.at+o+width > len(t.f.b) {
		return 0, errMetadata("a field that lies outside")
	}
	return t.at + o, nil
}

// numbers checks the fields of the first slots, which are numbers of so many bytes.
func (t table) numbers(widths ...int) error {
	for slot, width := range widths {
		if _, err := t.field(slot, width); err != nil {
			return err
		}
	}
	return nil
}

func (t table) byte(slot int) (byte, error) {
	at, err := t.field(slot, 1)
	if err != nil || at == 0 {
		return 0, err
	}
	return t.f.b[at], nil
}

func (t table) int16(slot int) (int16, error) {
	at, err := t.field(slot, 2)
	if err != nil || at == 0 {
		return 0, err
	}
	return int16(binary.LittleEndian.Uint16(t.f.b[at:])), nil
}

func (t table) int32(slot int) (int32, error) {
	at, err := t.field(slot, 4)
	if err != nil || at == 0 {
		return 0, err
	}
	return int32(binary.LittleEndian.Uint32(t.f.b[at:])), nil
}

func (t table) int64(slot int) (int64, error) {
	at, err := t.field(slot, 8)
	if err != nil || at == 0 {
		return 0, err
	}
	return int64(binary.LittleEndian.Uint64(t.f.b[at:])), nil
}

// table returns the table of a field; ok is false if there is none.
func (t table) table(slot int) (sub table, ok bool, err error) {
	at, err := t.field(slot, 4)
	if err != nil || at == 0 {
		return table{}, false, err
	}
	sub, err = t.f.table(at)
	return sub, err == nil, err
}

// vector returns the position and number of the elements of a vector, which are of so many bytes.
func (t table) vector(slot, width int) (at, n int, err error) {
	field, err := t.field(slot, 4)
	if err != nil || field == 0 {
		return 0, 0, err
	}
	pos, err := t.f.target(field)
	if err != nil {
		return 0, 0, err
	}
	count := int64(binary.LittleEndian.Uint32(t.f.b[pos:]))
	size := count * int64(width)
	if size > int64(len(t.f.b)-pos-4) {
		return 0, 0, errMetadata("a vector of %d elements that lies outside", count)
	}
	return pos + 4, int(count), t.f.visit(int(size))
}

// pair is an element of a vector of structs of two numbers.
type pair struct{ a, b int64 }

// pairs returns a vector of structs of two numbers.
func (t table) pairs(slot int) ([]pair, error) {
	at, n, err := t.vector(slot, 16)
	if err != nil {
		return nil, err
	}
	list := make([]pair, n)
	for i := range list {
		b := t.f.b[at+16*i:]
		list[i] = pair{int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))}
	}
	return list, nil
}

// text checks a string.
func (t table) text(slot int) error {
	_, _, err := t.vector(slot, 1)
	return err
}

// each calls do for each table of a vector.
func (t table) each(slot int, do func(table) error) error {
	at, n, err := t.vector(slot, 4)
	for i := 0; err == nil && i < n; i++ {
		var sub table
		if sub, err = t.f.table(at + 4*i); err == nil {
			err = do(sub)
		}
	}
	return err
}

// keyValues checks a vector of KeyValue tables.
func (t table) keyValues(slot int) error {
	return t.each(slot, func(kv table) error {
		if err := kv.text(0); err != nil {
			return err
		}
		return kv.text(1)
	})
}
