package schema

import (
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// format is one row of the table for both directions: the text of a kind of type in
// ArrowSchema.format, the types of arrow-go of that kind, and the functions that convert
// parameters.
type format struct {
	text     string           // the whole format, or the part before the ':' and the parameters
	params   string           // how the parameters are written; "" for none
	types    []arrow.DataType // examples of the types; keyOf selects what is compared
	children int              // how many children the type has, or anyNumber
	write    func(arrow.DataType) string
	read     func(parts) (arrow.DataType, error)

	// reread marks a kind of which arrow-go can hold types that Arrow forbids, such as a decimal of
	// 99 digits. An export reads its own output back, so that only read has to check the bounds.
	reread bool

	leaf    arrow.DataType // the only type of the row, without parameters and children, or nil; set by init
	indices bool           // the type may be that of a dictionary's indices; set by init
}

// parts holds the parts of a schema that a type is built from. The number of children was checked,
// unless it depends on the parameters.
type parts struct {
	params   string
	children []arrow.Field
	flags    int64
}

const anyNumber = -1

// formats has every format string of the C data interface for which arrow-go has a type. A
// dictionary-encoded type has the format of its indices, and an extension type that of its storage,
// so neither has a row.
var formats = []format{
	leaf("n", arrow.Null),
	leaf("b", arrow.FixedWidthTypes.Boolean),
	leaf("c", arrow.PrimitiveTypes.Int8),
	leaf("C", arrow.PrimitiveTypes.Uint8),
	leaf("s", arrow.PrimitiveTypes.Int16),
	leaf("S", arrow.PrimitiveTypes.Uint16),
	leaf("i", arrow.PrimitiveTypes.Int32),
	leaf("I", arrow.PrimitiveTypes.Uint32),
	leaf("l", arrow.PrimitiveTypes.Int64),
	leaf("L", arrow.PrimitiveTypes.Uint64),
	leaf("e", arrow.FixedWidthTypes.Float16),
	leaf("f", arrow.PrimitiveTypes.Float32),
	leaf("g", arrow.PrimitiveTypes.Float64),

	leaf("z", arrow.BinaryTypes.Binary),
	leaf("Z", arrow.BinaryTypes.LargeBinary),
	leaf("vz", arrow.BinaryTypes.BinaryView),
	leaf("u", arrow.BinaryTypes.String),
	leaf("U", arrow.BinaryTypes.LargeString),
	leaf("vu", arrow.BinaryTypes.StringView),
	{
		text: "w:", params: "<bytes>", types: []arrow.DataType{&arrow.FixedSizeBinaryType{}},
		write: writeFixedSizeBinary, read: readFixedSizeBinary, reread: true,
	},
	{
		text: "d:", params: "<precision>,<scale>[,<bits>]", types: []arrow.DataType{
			&arrow.Decimal32Type{}, &arrow.Decimal64Type{}, &arrow.Decimal128Type{}, &arrow.Decimal256Type{},
		},
		write: writeDecimal, read: readDecimal, reread: true,
	},

	leaf("tdD", arrow.FixedWidthTypes.Date32),
	leaf("tdm", arrow.FixedWidthTypes.Date64),
	leaf("tts", arrow.FixedWidthTypes.Time32s),
	leaf("ttm", arrow.FixedWidthTypes.Time32ms),
	leaf("ttu", arrow.FixedWidthTypes.Time64us),
	leaf("ttn", arrow.FixedWidthTypes.Time64ns),
	leaf("tDs", arrow.FixedWidthTypes.Duration_s),
	leaf("tDm", arrow.FixedWidthTypes.Duration_ms),
	leaf("tDu", arrow.FixedWidthTypes.Duration_us),
	leaf("tDn", arrow.FixedWidthTypes.Duration_ns),
	leaf("tiM", arrow.FixedWidthTypes.MonthInterval),
	leaf("tiD", arrow.FixedWidthTypes.DayTimeInterval),
	leaf("tin", arrow.FixedWidthTypes.MonthDayNanoInterval),
	timestamp("tss:", arrow.Second),
	timestamp("tsm:", arrow.Millisecond),
	timestamp("tsu:", arrow.Microsecond),
	timestamp("tsn:", arrow.Nanosecond),

	list("+l", arrow.ListOfField),
	list("+L", arrow.LargeListOfField),
	list("+vl", arrow.ListViewOfField),
	list("+vL", arrow.LargeListViewOfField),
	{
		text: "+w:", params: "<size>", types: []arrow.DataType{&arrow.FixedSizeListType{}}, children: 1,
		write: writeFixedSizeList, read: readFixedSizeList, reread: true,
	},
	{text: "+s", types: []arrow.DataType{&arrow.StructType{}}, children: anyNumber, read: readStruct},
	{text: "+m", types: []arrow.DataType{&arrow.MapType{}}, children: 1, read: readMap},
	{text: "+r", types: []arrow.DataType{&arrow.RunEndEncodedType{}}, children: 2, read: readRunEndEncoded, reread: true},
	union("+us:", arrow.SparseUnionOf),
	union("+ud:", arrow.DenseUnionOf),
}

func leaf(text string, dt arrow.DataType) format {
	return format{
		text: text, types: []arrow.DataType{dt},
		read: func(parts) (arrow.DataType, error) { return dt, nil },
	}
}

func list[T arrow.DataType](text string, of func(arrow.Field) T) format {
	var example T
	return format{
		text: text, types: []arrow.DataType{example}, children: 1,
		read: func(p parts) (arrow.DataType, error) { return of(p.children[0]), nil },
	}
}

// Indexes of the table, for export and import.
var (
	byText = map[string]*format{}
	byKey  = map[key]*format{}
	// leaves has the rows of types without parameters and children, by their ID. Those with a unit have
	// several, and are not looked up here.
	leaves [64]*format
)

// maxHead is the maximum length of a format without its parameters.
const maxHead = 4

func init() {
	for i := range formats {
		f := &formats[i]
		byText[f.text] = f
		f.indices = !argument.IsNil(f.types[0]) && arrow.IsInteger(f.types[0].ID()) // the example of a union is nil
		if len(f.text) > maxHead {
			panic("schema: a format longer than maxHead: " + f.text)
		}
		for _, dt := range f.types {
			byKey[keyOf(dt)] = f
			if f.write == nil && f.children == 0 {
				leaves[dt.ID()], f.leaf = f, dt
			}
		}
	}
}

// key identifies the format of an arrow-go type: its Go type and, if it has one, the unit of time.
// A Go type of another package has no row, even if its ID method returns that of a known type.
type key struct {
	goType reflect.Type
	unit   arrow.TimeUnit
}

func keyOf(dt arrow.DataType) key {
	k := key{goType: reflect.TypeOf(dt)}
	switch dt := dt.(type) {
	case *arrow.Time32Type:
		k.unit = dt.Unit
	case *arrow.Time64Type:
		k.unit = dt.Unit
	case *arrow.TimestampType:
		k.unit = dt.Unit
	case *arrow.DurationType:
		k.unit = dt.Unit
	}
	return k
}

// leafOf returns the row of a type without parameters and children, or nil for others. It calls
// methods of arrow-go's types only.
func leafOf(dt arrow.DataType) *format {
	switch dt.(type) {
	case *arrow.NullType, *arrow.BooleanType, *arrow.Int8Type, *arrow.Uint8Type, *arrow.Int16Type, *arrow.Uint16Type,
		*arrow.Int32Type, *arrow.Uint32Type, *arrow.Int64Type, *arrow.Uint64Type, *arrow.Float16Type, *arrow.Float32Type,
		*arrow.Float64Type, *arrow.Date32Type, *arrow.Date64Type, *arrow.BinaryType, *arrow.LargeBinaryType,
		*arrow.BinaryViewType, *arrow.StringType, *arrow.LargeStringType, *arrow.StringViewType:
		return leaves[dt.ID()]
	}
	return nil
}

// formatOf returns the row of a type that is not nil, dictionary encoded or an extension type.
func formatOf(dt arrow.DataType) (*format, error) {
	k := keyOf(dt)
	f := byKey[k]
	if f != nil {
		return f, nil
	}
	switch dt.(type) {
	case *arrow.Time32Type, *arrow.Time64Type, *arrow.TimestampType, *arrow.DurationType:
		return nil, invalid(".format", fielderr.Text(fmt.Sprintf("%v with unit %d", k.goType, k.unit)),
			fielderr.Text("a unit of that type"))
	}
	return nil, unsupported(".format", k.goType, fielderr.Text("a type of arrow-go"))
}

// parse finds the row of a format string, and the parameters in it.
func parse(text string) (f *format, params string, err error) {
	head := text
	if i := strings.IndexByte(text, ':'); i >= 0 {
		head, params = text[:i+1], text[i+1:]
	}
	if f := byText[head]; f != nil {
		return f, params, nil
	}
	return nil, "", unknown(text)
}

// unknown returns the error for a format without a row. One that begins like a known format is
// malformed; any other may be of a later version of Arrow.
func unknown(text string) error {
	if !utf8.ValidString(text) {
		return invalid(".format", text, fielderr.Text("UTF-8"))
	}
	if text == "" {
		return invalid(".format", text, fielderr.Text("a format string"))
	}
	family := text[:1]
	if len(text) > 1 && strings.Contains("tv+", family) {
		family = text[:2]
	}
	var known []string
	for _, f := range formats {
		if strings.HasPrefix(f.text, family) {
			known = append(known, f.text+f.params)
		}
	}
	switch len(known) {
	case 0:
		return unsupported(".format", text, nil)
	case 1:
		return invalid(".format", text, known[0])
	default:
		return invalid(".format", text, fielderr.Text(fmt.Sprintf("one of %q", known)))
	}
}

// build reads a type. It completes an error of read with the found and expected values, if they are
// missing.
func (f *format) build(text string, p parts) (arrow.DataType, error) {
	dt, err := f.read(p)
	if e, ok := err.(*fielderr.Error); ok && e.Field == ".format" {
		e.Got = text
		if e.Want == nil {
			e.Want = f.text + f.params
		}
	}
	return dt, err
}
