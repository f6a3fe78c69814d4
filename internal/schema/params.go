package schema

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// malformed is the error of a read for parameters that do not match the row.
func malformed() error { return invalid(".format", nil, nil) }

// outOfRange is the error of a read for well-formed parameters that Arrow forbids.
func outOfRange(want string) error { return invalid(".format", nil, fielderr.Text(want)) }

// number parses a number exactly as strconv writes it: without a plus sign, leading zeros or spaces.
func number(s string) (n int32, ok bool) {
	v, err := strconv.ParseInt(s, 10, 32)
	n = int32(v)
	return n, err == nil && strconv.FormatInt(v, 10) == s
}

func writeFixedSizeBinary(dt arrow.DataType) string {
	return strconv.Itoa(dt.(*arrow.FixedSizeBinaryType).ByteWidth)
}

func readFixedSizeBinary(p parts) (arrow.DataType, error) {
	width, ok := number(p.params)
	switch {
	case !ok:
		return nil, malformed()
	case width < 0:
		return nil, outOfRange("a width of at least 0")
	}
	return &arrow.FixedSizeBinaryType{ByteWidth: int(width)}, nil
}

// decimals maps the number of bits in a format to the decimal type.
var decimals = map[string]struct {
	id     arrow.Type
	digits int32
}{
	"32":  {arrow.DECIMAL32, 9},
	"64":  {arrow.DECIMAL64, 18},
	"128": {arrow.DECIMAL128, 38},
	"256": {arrow.DECIMAL256, 76},
}

func writeDecimal(dt arrow.DataType) string {
	d := dt.(arrow.DecimalType)
	params := fmt.Sprintf("%d,%d", d.GetPrecision(), d.GetScale())
	if d.BitWidth() != 128 {
		params += "," + strconv.Itoa(d.BitWidth())
	}
	return params
}

func readDecimal(p parts) (arrow.DataType, error) {
	params := strings.Split(p.params, ",")
	if len(params) == 2 {
		params = append(params, "128")
	}
	if len(params) != 3 {
		return nil, malformed()
	}
	precision, precisionOK := number(params[0])
	scale, scaleOK := number(params[1])
	if !precisionOK || !scaleOK {
		return nil, malformed()
	}
	d, ok := decimals[params[2]]
	if !ok {
		return nil, outOfRange("32, 64, 128 or 256 bits")
	}
	if precision < 1 || precision > d.digits {
		return nil, outOfRange(fmt.Sprintf("a precision from 1 to %d", d.digits))
	}
	return arrow.NewDecimalType(d.id, precision, scale)
}

func timestamp(text string, unit arrow.TimeUnit) format {
	return format{
		text: text, params: "[<zone>]", types: []arrow.DataType{&arrow.TimestampType{Unit: unit}},
		write: func(dt arrow.DataType) string { return dt.(*arrow.TimestampType).TimeZone },
		read: func(p parts) (arrow.DataType, error) {
			if !utf8.ValidString(p.params) {
				return nil, outOfRange("UTF-8")
			}
			return &arrow.TimestampType{Unit: unit, TimeZone: p.params}, nil
		},
		reread: true,
	}
}

func writeFixedSizeList(dt arrow.DataType) string {
	return strconv.Itoa(int(dt.(*arrow.FixedSizeListType).Len()))
}

func readFixedSizeList(p parts) (arrow.DataType, error) {
	size, ok := number(p.params)
	switch {
	case !ok:
		return nil, malformed()
	case size < 0:
		return nil, outOfRange("a size of at least 0")
	case size == 0: // Arrow allows it; arrow-go's constructor panics
		return nil, unsupported(".format", nil, fielderr.Text("a size of at least 1"))
	}
	return arrow.FixedSizeListOfField(size, p.children[0]), nil
}

func readStruct(p parts) (arrow.DataType, error) { return arrow.StructOf(p.children...), nil }

func readMap(p parts) (arrow.DataType, error) {
	entries, ok := p.children[0].Type.(*arrow.StructType)
	if !ok || entries.NumFields() != 2 {
		return nil, invalid(".children[0]", fielderr.Text(fmt.Sprintf("%T", p.children[0].Type)),
			fielderr.Text("a struct of a key and a value"))
	}
	key, value := entries.Field(0), entries.Field(1)
	dt := mapOf(key, value)
	dt.KeysSorted = p.flags&abi.FlagMapKeysSorted != 0
	return dt, nil
}

// mapOf returns the type that arrow.MapOf makes, if that can hold all properties. MapOfFields
// exports the same, but inside a large_list_view, which arrow-go compares to the last bit, the two
// are not equal.
func mapOf(key, value arrow.Field) *arrow.MapType {
	if key.Metadata.Len() == 0 && value.Metadata.Len() == 0 {
		dt := arrow.MapOf(key.Type, value.Type)
		dt.SetItemNullable(value.Nullable)
		return dt
	}
	key.Nullable = false // some producers flag every field as nullable
	return arrow.MapOfFields(key, value)
}

func readRunEndEncoded(p parts) (arrow.DataType, error) {
	ends, values := p.children[0], p.children[1]
	switch ends.Type.(type) {
	case *arrow.Int16Type, *arrow.Int32Type, *arrow.Int64Type:
	default:
		return nil, invalid(".children[0]", fielderr.Text(fmt.Sprintf("%T", ends.Type)),
			fielderr.Text("int16, int32 or int64 run ends"))
	}
	if ends.Nullable {
		return nil, invalid(".children[0].flags", fielderr.Text("nullable"), fielderr.Text("run ends without nulls"))
	}
	dt := arrow.RunEndEncodedOf(ends.Type, values.Type)
	dt.ValueNullable = values.Nullable
	return dt, nil
}

func union[T arrow.UnionType](text string, of func([]arrow.Field, []arrow.UnionTypeCode) T) format {
	var example T
	return format{
		text: text, params: "<id>,<id>...", types: []arrow.DataType{example}, children: anyNumber,
		write: func(dt arrow.DataType) string { return writeTypeIDs(dt.(T).TypeCodes()) },
		read: func(p parts) (arrow.DataType, error) {
			ids, err := readTypeIDs(p.params)
			if err != nil {
				return nil, err
			}
			if len(ids) != len(p.children) {
				return nil, invalid(".n_children", len(p.children),
					fielderr.Text(fmt.Sprintf("%d, one for each type id", len(ids))))
			}
			return of(p.children, ids), nil
		},
		reread: true,
	}
}

func writeTypeIDs(ids []arrow.UnionTypeCode) string {
	var b []byte
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, int64(id), 10)
	}
	return string(b)
}

func readTypeIDs(params string) ([]arrow.UnionTypeCode, error) {
	var ids []arrow.UnionTypeCode
	if params == "" {
		return ids, nil // a union of no types
	}
	var seen [int(arrow.MaxUnionTypeCode) + 1]bool
	for s := range strings.SplitSeq(params, ",") {
		id, ok := number(s)
		switch {
		case !ok:
			return nil, malformed()
		case id < 0 || id > int32(arrow.MaxUnionTypeCode):
			return nil, outOfRange("type ids from 0 to 127")
		case seen[id]:
			return nil, outOfRange("each type id once")
		}
		seen[id] = true
		ids = append(ids, arrow.UnionTypeCode(id))
	}
	return ids, nil
}
