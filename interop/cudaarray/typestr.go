package cudaarray

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

const (
	booleans = "|b1" // one byte each
	bits     = "<t1" // eight in a byte, the first one in the lowest bit, as in Arrow's bitmaps
)

// numbers are the types whose elements NumPy has as well.
var numbers = map[string]arrow.DataType{
	"|i1": arrow.PrimitiveTypes.Int8, "<i2": arrow.PrimitiveTypes.Int16,
	"<i4": arrow.PrimitiveTypes.Int32, "<i8": arrow.PrimitiveTypes.Int64,
	"|u1": arrow.PrimitiveTypes.Uint8, "<u2": arrow.PrimitiveTypes.Uint16,
	"<u4": arrow.PrimitiveTypes.Uint32, "<u8": arrow.PrimitiveTypes.Uint64,
	"<f2": arrow.FixedWidthTypes.Float16, "<f4": arrow.PrimitiveTypes.Float32, "<f8": arrow.PrimitiveTypes.Float64,
}

// typeStrs is numbers by the type.
var typeStrs = func() map[arrow.Type]string {
	all := map[arrow.Type]string{}
	for typestr, dt := range numbers {
		all[dt.ID()] = typestr
	}
	return all
}()

// elements returns the typestr of the elements, and the lengths of the lists that they are in, the
// outermost one first.
func elements(op string, dt arrow.DataType) (typestr string, lists []int64, err error) {
	for {
		switch t := dt.(type) {
		case *arrow.FixedSizeListType:
			if len(lists) == maxDimensions-1 {
				return "", nil, fielderr.New(op, "type", fielderr.Type(dt), fmt.Sprintf("at most %d dimensions", maxDimensions), arrow.ErrNotImplemented)
			}
			lists = append(lists, int64(t.Len()))
			dt = t.Elem()
		case arrow.ExtensionType:
			dt = t.StorageType()
			if t.ExtensionName() == "arrow.bool8" && dt.ID() == arrow.INT8 {
				return booleans, lists, nil
			}
		case *arrow.TimestampType:
			return "<M8[" + t.Unit.String() + "]", lists, nil
		case *arrow.DurationType:
			return "<m8[" + t.Unit.String() + "]", lists, nil
		case *arrow.Date64Type:
			return "<M8[ms]", lists, nil
		default:
			if typestr, ok := typeStrs[dt.ID()]; ok {
				return typestr, lists, nil
			}
			want := "numbers, timestamps, durations, or fixed_size_list of them"
			if dt.ID() == arrow.BOOL {
				want = "booleans in bytes (arrow.bool8 or uint8); Arrow's are bits"
			}
			return "", nil, fielderr.New(op, "type", fielderr.Type(dt), want, arrow.ErrNotImplemented)
		}
	}
}

// width returns the bytes of an element: of a typestr from elements or typeOf.
func width(typestr string) int64 { return int64(typestr[2] - '0') }

// typeOf returns the Arrow type of the elements of a typestr, and the typestr as elements returns it.
func typeOf(typestr string) (dt arrow.DataType, canonical string, err error) {
	canonical, err = ordered(typestr)
	if err != nil {
		return nil, "", err
	}
	if dt, ok := numbers[canonical]; ok {
		return dt, canonical, nil
	}
	if canonical == booleans {
		return arrow.PrimitiveTypes.Uint8, canonical, nil
	}
	if unit, ok := strings.CutPrefix(canonical, "<M8["); ok {
		if u, ok := timeUnit(unit); ok {
			return &arrow.TimestampType{Unit: u}, canonical, nil
		}
	}
	if unit, ok := strings.CutPrefix(canonical, "<m8["); ok {
		if u, ok := timeUnit(unit); ok {
			return &arrow.DurationType{Unit: u}, canonical, nil
		}
	}
	reasons := map[byte]string{
		'b': "booleans of one byte", 't': "no bit fields, except as a mask", 'c': "no complex numbers: Arrow has none",
		'V': "no structures", 'S': "no strings", 'U': "no strings", 'O': "no Python objects",
		'M': "a unit of s, ms, us or ns", 'm': "a unit of s, ms, us or ns",
	}
	want, ok := reasons[canonical[1]]
	if !ok {
		want = "a number of 1, 2, 4 or 8 bytes (f: 2, 4 or 8)"
	}
	return nil, "", fielderr.New(opImport, "typestr", quoted(typestr), want, arrow.ErrNotImplemented)
}

// ordered returns the typestr with the byte order as elements returns it: "|" for elements of one byte.
func ordered(typestr string) (string, error) {
	bad := func(want string, is error) (string, error) {
		return "", fielderr.New(opImport, "typestr", quoted(typestr), want, is)
	}
	if len(typestr) < 3 || typestr[2] < '1' || typestr[2] > '9' {
		return bad(`one like "<i8": the byte order, the kind and the bytes`, arrow.ErrInvalid)
	}
	one := typestr[2:] == "1"
	switch typestr[0] {
	case '<', '|', '>':
	default:
		return bad(`a byte order of "<" or "|"`, arrow.ErrInvalid)
	}
	switch {
	case one && typestr[1] == 't':
		return bits, nil
	case one:
		return "|" + typestr[1:], nil
	case typestr[0] == '>':
		return bad("the byte order of the machine, which is little-endian", arrow.ErrNotImplemented)
	case typestr[0] == '|' && typestr[1] != 'V' && typestr[1] != 'S' && typestr[1] != 'O':
		return bad("a byte order for elements of several bytes", arrow.ErrInvalid)
	}
	return typestr, nil
}

func timeUnit(text string) (arrow.TimeUnit, bool) {
	for _, u := range []arrow.TimeUnit{arrow.Second, arrow.Millisecond, arrow.Microsecond, arrow.Nanosecond} {
		if text == u.String()+"]" {
			return u, true
		}
	}
	return 0, false
}

// quoted returns input as errors print it.
func quoted(s string) string {
	if len(s) > 100 {
		return fmt.Sprintf("%q... (%d bytes)", s[:100], len(s))
	}
	return strconv.Quote(s)
}
