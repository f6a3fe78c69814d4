//go:build cgo && unix

package pyextension

import (
	"encoding/binary"
	"fmt"
	"math"
)

// A request and a reply are values in a format of their own: a letter, then the content that the letter implies,
// numbers in little endian. internal/capi/request.c and reply.c are the other side.
const (
	wireNone   = 'N'
	wireTrue   = 'T'
	wireFalse  = 'F'
	wireInt    = 'I' // int64
	wireUint   = 'U' // uint64: an int that int64 does not hold
	wireFloat  = 'D' // float64
	wireString = 'S' // uint32 size, UTF-8
	wireBytes  = 'B' // uint32 size, bytes
	wireList   = 'L' // uint32 count, values
	wireDict   = 'M' // uint32 count, as often: uint32 size, UTF-8, a value
	wireArrow  = 'A' // requests: a form, and its content (see source)
	wireTuple  = 'P' // replies: as a list
	wireStruct = 'C' // replies: the number of a C struct in capsule.c, uint64 address, which are a capsule's
	wireObject = 'O' // replies: kind, uint64 handle, int32 device type, int64 device ID, int64 rows
	wireResult = 'R' // a reply with a value
	wireError  = 'E' // a reply with an error: uint32 size, kind, uint32 size, text, int32 errno or 0

	wireException = 'X' // a reply with an exception: uint64 address of it, uint32 size, text of a note
)

// dict is a Python dict with keys that are strings, in its order.
type dict []item

type item struct {
	key   string
	value any
}

// get returns the value under a key, or nil.
func (d dict) get(key string) any {
	for _, it := range d {
		if it.key == key {
			return it.value
		}
	}
	return nil
}

// tuple is a list that is a tuple in Python.
type tuple []any

// decoder reads values.
type decoder struct {
	data  []byte
	arrow *requestReader // reads an Arrow object
}

// value reads the next value: nil, bool, int64, uint64, float64, string, []byte, []any, dict, or the result of arrow.
func (d *decoder) value() (any, error) {
	letter, err := d.take(1)
	if err != nil {
		return nil, err
	}
	switch letter[0] {
	case wireNone:
		return nil, nil
	case wireTrue, wireFalse:
		return letter[0] == wireTrue, nil
	case wireInt:
		return d.int64()
	case wireUint:
		n, err := d.int64()
		return uint64(n), err
	case wireFloat:
		bits, err := d.int64()
		return math.Float64frombits(uint64(bits)), err
	case wireString:
		return d.text()
	case wireBytes:
		b, err := d.sized()
		return append([]byte{}, b...), err
	case wireList, wireTuple:
		return d.values()
	case wireDict:
		return d.dict()
	case wireArrow:
		if d.arrow != nil {
			return d.arrow.source()
		}
	}
	return nil, fmt.Errorf("request: unknown letter %q", letter)
}

// list reads the begin of a list: its letter, and how many values follow.
func (d *decoder) list() (letter byte, n int, _ error) {
	letters, err := d.take(1)
	if err != nil {
		return 0, 0, err
	}
	n, err = d.count()
	return letters[0], n, err
}

func (d *decoder) values() ([]any, error) {
	n, err := d.count()
	list := make([]any, 0, n)
	for range n {
		v, failed := d.value()
		if failed != nil {
			return nil, failed
		}
		list = append(list, v)
	}
	return list, err
}

func (d *decoder) dict() (dict, error) {
	n, err := d.count()
	values := make(dict, 0, n)
	for range n {
		key, failed := d.text()
		if failed != nil {
			return nil, failed
		}
		v, failed := d.value()
		if failed != nil {
			return nil, failed
		}
		values = append(values, item{key, v})
	}
	return values, err
}

func (d *decoder) text() (string, error) {
	b, err := d.sized()
	return string(b), err
}

func (d *decoder) sized() ([]byte, error) {
	n, err := d.uint32()
	if err != nil {
		return nil, err
	}
	return d.take(int(n))
}

// count is the number of values of a list; each has a byte at least.
func (d *decoder) count() (int, error) {
	n, err := d.uint32()
	if err == nil && int(n) > len(d.data) {
		return 0, errShort
	}
	return int(n), err
}

func (d *decoder) uint32() (uint32, error) {
	b, err := d.take(4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

func (d *decoder) int64() (int64, error) {
	b, err := d.take(8)
	if err != nil {
		return 0, err
	}
	return int64(binary.LittleEndian.Uint64(b)), nil
}

// address reads a number that is an address or a handle.
func (d *decoder) address() (uintptr, error) {
	n, err := d.int64()
	return uintptr(n), err
}

var errShort = fmt.Errorf("request: it ends too early")

func (d *decoder) take(n int) ([]byte, error) {
	if n > len(d.data) {
		return nil, errShort
	}
	b := d.data[:n]
	d.data = d.data[n:]
	return b, nil
}

// encoder writes a reply.
type encoder struct{ data []byte }

func (e *encoder) letter(l byte) { e.data = append(e.data, l) }

func (e *encoder) int64(v int64) { e.data = binary.LittleEndian.AppendUint64(e.data, uint64(v)) }

func (e *encoder) sized(s string) {
	e.data = binary.LittleEndian.AppendUint32(e.data, uint32(len(s)))
	e.data = append(e.data, s...)
}

// count begins a list or a dict of n values.
func (e *encoder) count(letter byte, n int) {
	e.data = binary.LittleEndian.AppendUint32(append(e.data, letter), uint32(n))
}

// tooLong is the error for a size that 32 bits cannot hold.
func tooLong(n int) error {
	if n > math.MaxUint32 {
		return fmt.Errorf("a value of %d bytes or elements is too long", n)
	}
	return nil
}

// value writes the values that decoder.value reads, tuple, *object and exportedStruct.
func (e *encoder) value(v any) error {
	switch v := v.(type) {
	case nil:
		e.letter(wireNone)
	case bool:
		if v {
			e.letter(wireTrue)
		} else {
			e.letter(wireFalse)
		}
	case int64:
		e.letter(wireInt)
		e.int64(v)
	case uint64:
		e.letter(wireUint)
		e.int64(int64(v))
	case float64:
		e.letter(wireFloat)
		e.int64(int64(math.Float64bits(v)))
	case string:
		e.letter(wireString)
		e.sized(v)
		return tooLong(len(v))
	case []byte:
		e.letter(wireBytes)
		e.sized(string(v))
		return tooLong(len(v))
	case []any:
		return e.list(wireList, v)
	case tuple:
		return e.list(wireTuple, v)
	case dict:
		e.count(wireDict, len(v))
		for _, it := range v {
			e.sized(it.key)
			if err := e.value(it.value); err != nil {
				return err
			}
		}
	case *object:
		e.object(v)
	case exportedStruct:
		e.letter(wireStruct)
		e.letter(v.number)
		e.int64(int64(v.at))
	default:
		return fmt.Errorf("a reply cannot hold %T", v)
	}
	return nil
}

func (e *encoder) list(letter byte, values []any) error {
	e.count(letter, len(values))
	for _, value := range values {
		if err := e.value(value); err != nil {
			return err
		}
	}
	return tooLong(len(values))
}

func (e *encoder) object(o *object) {
	id := o.deviceID()
	e.letter(wireObject)
	e.letter(byte(o.kind))
	e.int64(int64(o.handle))
	e.data = binary.LittleEndian.AppendUint32(e.data, uint32(id.Type))
	e.int64(id.Ordinal)
	e.int64(o.rows())
}
