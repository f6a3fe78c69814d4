package schema

import (
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// A format is one row of the table that both directions read: how a kind of type
// is spelled in ArrowSchema.format, which types of arrow-go are of that kind,
// and how to get from the one to the other.
type format struct {
	text     string           // the whole format, or all up to the ':' that parameters follow
	params   string           // how the parameters are written; "" for none
	types    []arrow.DataType // the types, by example: keyOf says what counts
	children int              // how many children the type has, or anyNumber
	write    func(arrow.DataType) string
	read     func(parts) (arrow.DataType, error)

	// reread marks a kind of which arrow-go can hold values that Arrow forbids,
	// such as a decimal of 99 digits. An export reads back what it wrote, so
	// that read is the one place that knows the bounds.
	reread bool

	indices bool // a dictionary's may be of the type: set by init
}

// parts is what a type is read from. The number of children is right already,
// unless it depends on the parameters.
type parts struct {
	params   string
	children []arrow.Field
	flags    int64
}

const anyNumber = -1

// formats is every format string of the C data interface that arrow-go has a
// type for. A dictionary-encoded type has the format of its indices, and an
// extension type that of its storage, so neither has a row.
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

// The table, by what each direction knows of a type.
var (
	byText = map[string]*format{}
	byKey  = map[key]*format{}
)

// maxHead is how long a format is, up to its parameters.
const maxHead = 4

func init() {
	for i := range formats {
		f := &formats[i]
		byText[f.text] = f
		f.indices = !isNil(f.types[0]) && arrow.IsInteger(f.types[0].ID()) // unions have nil for an example
		if len(f.text) > maxHead {
			panic("schema: a format longer than maxHead: " + f.text)
		}
		for _, dt := range f.types {
			byKey[keyOf(dt)] = f
		}
	}
}

// A key is what tells arrow-go's types apart that have different formats: the Go
// type and, if it has one, the unit of time. A Go type of somebody else's has no
// row, whatever its ID method returns.
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

// formatOf is the row of a type that is neither nil, nor dictionary encoded, nor
// an extension type.
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

// unknown is the error for a format without a row. One that begins like a format
// that we know is malformed; any other may be of a version of Arrow to come.
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

// build reads a type, and says in an error what was found and expected where the
// row's read did not.
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
