package schema

import (
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/endian"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// panicking is a type that is not arrow-go's and does as it likes.
type panicking struct{ arrow.DataType }

func (panicking) ID() arrow.Type { panic("ID") }

type panickingExtension struct{ testType }

func (*panickingExtension) Serialize() string { panic("out of ink") }

func TestExportOfWhatCannotBeExpressed(t *testing.T) {
	cyclic := dict(arrow.PrimitiveTypes.Int8, nil)
	cyclic.ValueType = cyclic
	wide := arrow.DataType(arrow.PrimitiveTypes.Int8)
	for range 20 {
		wide = arrow.StructOf(arrow.Field{Type: wide}, arrow.Field{Type: wide})
	}
	inner := extension("test.any", "", arrow.Null)
	huge := strings.Repeat("x", maxText/2)
	dicts := arrow.StructOf(slices.Repeat([]arrow.Field{{Type: dict(arrow.PrimitiveTypes.Int8, arrow.Null)}}, 600_000)...)

	for _, c := range []struct {
		name  string
		field arrow.Field
		want  string
	}{
		{"no type", arrow.Field{}, `.format = nil, want a type: invalid`},
		{"a typed nil", arrow.Field{Type: (*arrow.StructType)(nil)}, `.format = nil, want a type: invalid`},
		{"a typed nil below", arrow.Field{Type: arrow.ListOf((*arrow.Int8Type)(nil))}, `.children[0].format = nil, want a type: invalid`},
		{"a nil extension", arrow.Field{Type: (*testType)(nil)}, `.format = nil, want a type: invalid`},
		{"an extension without storage", arrow.Field{Type: extension("test.any", "", nil)}, `.format = *schema.testType without storage, want a type: invalid`},
		{"an extension over an extension", arrow.Field{Type: extension("test.any", "", inner)}, `.format = *schema.testType over *schema.testType, want storage that is not an extension type itself: not implemented`},
		{"an extension that panics", arrow.Field{Type: &panickingExtension{testType{ExtensionBase: arrow.ExtensionBase{Storage: arrow.Null}}}}, `.format = *schema.panickingExtension: invalid: the type panics: out of ink`},
		{"somebody's type", arrow.Field{Type: panicking{arrow.Null}}, `.format = schema.panicking, want a type of arrow-go: not implemented`},
		{"a zero list", arrow.Field{Type: &arrow.LargeListViewType{}}, `.children[0].format = nil, want a type: invalid`},
		{"a zero fixed-size list", arrow.Field{Type: &arrow.FixedSizeListType{}}, `.format = "+w:0", want a size of at least 1: not implemented`},
		{"a zero map", arrow.Field{Type: &arrow.MapType{}}, `.format = *arrow.MapType: invalid: the type panics: runtime error: invalid memory address or nil pointer dereference`},
		{"a zero run-end", arrow.Field{Type: &arrow.RunEndEncodedType{}}, `.children[0] = <nil>, want int16, int32 or int64 run ends: invalid`},
		{"run ends of strings", arrow.Field{Type: arrow.RunEndEncodedOf(arrow.BinaryTypes.String, arrow.Null)}, `.children[0] = *arrow.StringType, want int16, int32 or int64 run ends: invalid`},
		{"a union without a type", arrow.Field{Type: arrow.SparseUnionOf([]arrow.Field{{Name: "a"}}, []int8{0})}, `.children[0].format = nil, want a type: invalid`},
		{"a zero dictionary", arrow.Field{Type: &arrow.DictionaryType{}}, `.dictionary.format = nil, want a type: invalid`},
		{"a dictionary without indices", arrow.Field{Type: dict(nil, arrow.Null)}, `.format = <nil>, want an integer type for the indices of a dictionary: invalid`},
		{"a dictionary with string indices", arrow.Field{Type: dict(arrow.BinaryTypes.String, arrow.Null)}, `.format = *arrow.StringType, want an integer type for the indices of a dictionary: invalid`},
		{"a dictionary with bad values", arrow.Field{Type: dict(arrow.PrimitiveTypes.Int8, &arrow.Decimal128Type{})}, `.dictionary.format = "d:0,0", want a precision from 1 to 38: invalid`},
		{"a dictionary of itself", arrow.Field{Type: cyclic}, strings.Repeat(".dictionary", 65) + `, want at most 64 levels below the root: invalid`},
		{"too many structs", arrow.Field{Type: wide}, `....children[1].n_children = 2, want at most 1048576 structs in the tree: invalid`},
		{"too many dictionaries", arrow.Field{Type: dicts}, `.children[448575].dictionary, want at most 1048576 structs in the tree: invalid`},
		{"time32 of nanoseconds", arrow.Field{Type: &arrow.Time32Type{Unit: arrow.Nanosecond}}, `.format = *arrow.Time32Type with unit 3, want a unit of that type: invalid`},
		{"time64 of seconds", arrow.Field{Type: &arrow.Time64Type{}}, `.format = *arrow.Time64Type with unit 0, want a unit of that type: invalid`},
		{"timestamp of no unit", arrow.Field{Type: &arrow.TimestampType{Unit: 4}}, `.format = *arrow.TimestampType with unit 4, want a unit of that type: invalid`},
		{"duration of no unit", arrow.Field{Type: &arrow.DurationType{Unit: -1}}, `.format = *arrow.DurationType with unit -1, want a unit of that type: invalid`},
		{"decimal without precision", arrow.Field{Type: &arrow.Decimal32Type{}}, `.format = "d:0,0,32", want a precision from 1 to 9: invalid`},
		{"fixed size binary of -1", arrow.Field{Type: &arrow.FixedSizeBinaryType{ByteWidth: -1}}, `.format = "w:-1", want a width of at least 0: invalid`},
		{"fixed size binary of 4 GiB", arrow.Field{Type: &arrow.FixedSizeBinaryType{ByteWidth: 1 << 32}}, `.format = "w:4294967296", want "w:<bytes>": invalid`},
		{"a zone with a NUL", arrow.Field{Type: &arrow.TimestampType{TimeZone: "U\x00C"}}, `.format = "tss:U\x00C", want no NUL: invalid`},
		{"a zone not UTF-8", arrow.Field{Type: &arrow.TimestampType{TimeZone: "\xff"}}, `.format = "tss:\xff", want UTF-8: invalid`},
		{"a name with a NUL", arrow.Field{Name: "a\x00b", Type: arrow.Null}, `.name = "a\x00b", want UTF-8 without a NUL: invalid`},
		{"a name below not UTF-8", arrow.Field{Type: arrow.StructOf(arrow.Field{Name: "\xff", Type: arrow.Null})}, `.children[0].name = "\xff", want UTF-8 without a NUL: invalid`},
		{"too many pairs", arrow.Field{Type: arrow.Null, Metadata: metadata(make([]string, 2*maxPairs+2)...)}, `.metadata.n = 65537, want 0 to 65536: invalid`},
		{"too much text", arrow.Field{Name: huge, Type: arrow.ListOfField(arrow.Field{Name: huge, Type: arrow.Null})}, `.children[0], want at most 64 MiB of names and metadata in the tree: invalid`},
	} {
		t.Run(c.name, func(t *testing.T) {
			noLeak(t)
			out := garbage()
			err := Export(c.field, out)
			checkError(t, err, "export", c.want)
			assert.Equal(t, garbage(), out, "*out was written although the export failed")
		})
	}
}

func TestExportSchemaOfWhatCannotBeExpressed(t *testing.T) {
	other := endian.BigEndian
	if endian.NativeEndian == endian.BigEndian {
		other = endian.LittleEndian
	}
	for want, s := range map[string]*arrow.Schema{
		`cdevice: export: ArrowSchema = nil, want a schema: invalid`:                                            nil,
		`cdevice: export: ArrowSchema = ` + other.String() + ` schema, want native byte order: not implemented`: arrow.NewSchemaWithEndian(nil, nil, other),
		`cdevice: export: ArrowSchema.children[0].format = nil, want a type: invalid`: arrow.NewSchema(
			[]arrow.Field{{Type: (*arrow.ListType)(nil)}}, nil),
	} {
		out := garbage()
		assert.EqualError(t, ExportSchema(s, out), want)
		assert.Equal(t, garbage(), out, "*out was written although the export failed")
	}
	assert.EqualError(t, Export(leafBase, nil), `cdevice: export: ArrowSchema = NULL, want memory for a struct: invalid`)
}

func TestDepthLimitIsTheSameBothWays(t *testing.T) {
	noLeak(t)
	dt := arrow.DataType(arrow.Null)
	for range MaxDepth {
		dt = arrow.ListOf(dt)
	}
	f := arrow.Field{Type: dt}
	back, err := Import(mustExport(t, f))
	require.NoError(t, err)
	assert.NoError(t, sameField(f, back))
	want := `cdevice: export: ArrowSchema` + strings.Repeat(".children[0]", 65) + `, want at most 64 levels below the root: invalid`
	assert.EqualError(t, Export(arrow.Field{Type: arrow.ListOf(dt)}, garbage()), want)
}
