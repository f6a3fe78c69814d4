package schema

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// types has every type of arrow-go, and the ArrowSchema tree that the
// specification demands for it, as render writes it, for a field x that is not
// nullable. The trees are written by hand, so that a mistake that both
// directions share shows.
var types = []struct {
	name string
	dt   arrow.DataType
	want string
}{
	{"null", arrow.Null, "x:n"},
	{"bool", arrow.FixedWidthTypes.Boolean, "x:b"},
	{"int8", arrow.PrimitiveTypes.Int8, "x:c"},
	{"uint8", arrow.PrimitiveTypes.Uint8, "x:C"},
	{"int16", arrow.PrimitiveTypes.Int16, "x:s"},
	{"uint16", arrow.PrimitiveTypes.Uint16, "x:S"},
	{"int32", arrow.PrimitiveTypes.Int32, "x:i"},
	{"uint32", arrow.PrimitiveTypes.Uint32, "x:I"},
	{"int64", arrow.PrimitiveTypes.Int64, "x:l"},
	{"uint64", arrow.PrimitiveTypes.Uint64, "x:L"},
	{"float16", arrow.FixedWidthTypes.Float16, "x:e"},
	{"float32", arrow.PrimitiveTypes.Float32, "x:f"},
	{"float64", arrow.PrimitiveTypes.Float64, "x:g"},
	{"decimal32", &arrow.Decimal32Type{Precision: 9, Scale: 2}, "x:d:9,2,32"},
	{"decimal64", &arrow.Decimal64Type{Precision: 18, Scale: 18}, "x:d:18,18,64"},
	{"decimal128", &arrow.Decimal128Type{Precision: 38, Scale: 0}, "x:d:38,0"},
	{"decimal128 negative scale", &arrow.Decimal128Type{Precision: 1, Scale: -7}, "x:d:1,-7"},
	{"decimal256", &arrow.Decimal256Type{Precision: 76, Scale: 40}, "x:d:76,40,256"},
	{"date32", arrow.FixedWidthTypes.Date32, "x:tdD"},
	{"date64", arrow.FixedWidthTypes.Date64, "x:tdm"},
	{"time32 s", arrow.FixedWidthTypes.Time32s, "x:tts"},
	{"time32 ms", arrow.FixedWidthTypes.Time32ms, "x:ttm"},
	{"time64 us", arrow.FixedWidthTypes.Time64us, "x:ttu"},
	{"time64 ns", arrow.FixedWidthTypes.Time64ns, "x:ttn"},
	{"timestamp s", &arrow.TimestampType{Unit: arrow.Second}, "x:tss:"},
	{"timestamp ms", &arrow.TimestampType{Unit: arrow.Millisecond}, "x:tsm:"},
	{"timestamp us", &arrow.TimestampType{Unit: arrow.Microsecond}, "x:tsu:"},
	{"timestamp ns", &arrow.TimestampType{Unit: arrow.Nanosecond}, "x:tsn:"},
	{"timestamp s zone", &arrow.TimestampType{Unit: arrow.Second, TimeZone: "Europe/Berlin"}, "x:tss:Europe/Berlin"},
	{"timestamp ms zone", &arrow.TimestampType{Unit: arrow.Millisecond, TimeZone: "UTC"}, "x:tsm:UTC"},
	{"timestamp us offset", &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "+02:00"}, "x:tsu:+02:00"},
	{"timestamp ns zone", &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "America/Port-au-Prince"}, "x:tsn:America/Port-au-Prince"},
	{"duration s", arrow.FixedWidthTypes.Duration_s, "x:tDs"},
	{"duration ms", arrow.FixedWidthTypes.Duration_ms, "x:tDm"},
	{"duration us", arrow.FixedWidthTypes.Duration_us, "x:tDu"},
	{"duration ns", arrow.FixedWidthTypes.Duration_ns, "x:tDn"},
	{"interval months", arrow.FixedWidthTypes.MonthInterval, "x:tiM"},
	{"interval day time", arrow.FixedWidthTypes.DayTimeInterval, "x:tiD"},
	{"interval month day nano", arrow.FixedWidthTypes.MonthDayNanoInterval, "x:tin"},
	{"binary", arrow.BinaryTypes.Binary, "x:z"},
	{"large binary", arrow.BinaryTypes.LargeBinary, "x:Z"},
	{"binary view", arrow.BinaryTypes.BinaryView, "x:vz"},
	{"utf8", arrow.BinaryTypes.String, "x:u"},
	{"large utf8", arrow.BinaryTypes.LargeString, "x:U"},
	{"utf8 view", arrow.BinaryTypes.StringView, "x:vu"},
	{"fixed size binary", &arrow.FixedSizeBinaryType{ByteWidth: 42}, "x:w:42"},
	{"fixed size binary of 0", &arrow.FixedSizeBinaryType{}, "x:w:0"},

	{"list", arrow.ListOf(arrow.PrimitiveTypes.Int8), "x:+l{item:c n}"},
	{"list of a field", arrow.ListOfField(arrow.Field{Name: "e", Type: arrow.PrimitiveTypes.Int8, Metadata: metadata("k", "v")}),
		"x:+l{e:c [k=v]}"},
	{"large list", arrow.LargeListOf(arrow.BinaryTypes.String), "x:+L{item:u n}"},
	{"large list not nullable", arrow.LargeListOfNonNullable(arrow.BinaryTypes.String), "x:+L{item:u}"},
	{"list view", arrow.ListViewOf(arrow.BinaryTypes.String), "x:+vl{item:u n}"},
	{"large list view", arrow.LargeListViewOfNonNullable(arrow.BinaryTypes.StringView), "x:+vL{item:vu}"},
	{"fixed size list", arrow.FixedSizeListOf(3, arrow.PrimitiveTypes.Float32), "x:+w:3{item:f n}"},
	{"fixed size list not nullable", arrow.FixedSizeListOfNonNullable(2147483647, arrow.PrimitiveTypes.Float32), "x:+w:2147483647{item:f}"},
	{"struct", arrow.StructOf(
		arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int8, Nullable: true},
		arrow.Field{Name: "a", Type: arrow.BinaryTypes.String, Metadata: metadata("k", "", "", "v", "k", "")},
	), "x:+s{a:c n, a:u [k= =v k=]}"},
	{"struct of nothing", arrow.StructOf(), "x:+s"},
	{"struct of structs", arrow.StructOf(
		arrow.Field{Name: "a", Type: arrow.StructOf(arrow.Field{Name: "b", Type: arrow.Null, Nullable: true})},
		arrow.Field{Name: "c", Type: arrow.ListOf(arrow.StructOf(arrow.Field{Name: "ä€😀", Type: arrow.PrimitiveTypes.Int8}))},
	), "x:+s{a:+s{b:n n}, c:+l{item:+s n{ä€😀:c}}}"},
	{"map", arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32), "x:+m{entries:+s{key:u, value:i n}}"},
	{"map sorted", sortedMap(arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int32)), "x:+m s{entries:+s{key:u, value:i n}}"},
	{"map items not nullable", arrow.MapOfFields(
		arrow.Field{Type: arrow.BinaryTypes.String, Metadata: metadata("k", "v")},
		arrow.Field{Type: arrow.PrimitiveTypes.Int32, Metadata: metadata("i", "w")},
	), "x:+m{entries:+s{key:u [k=v], value:i [i=w]}}"},
	{"map of maps", arrow.MapOf(arrow.PrimitiveTypes.Int8, arrow.MapOf(arrow.PrimitiveTypes.Int8, arrow.Null)),
		"x:+m{entries:+s{key:c, value:+m n{entries:+s{key:c, value:n n}}}}"},
	{"sparse union", arrow.SparseUnionOf([]arrow.Field{
		{Name: "a", Type: arrow.PrimitiveTypes.Int8, Nullable: true}, {Name: "b", Type: arrow.BinaryTypes.String, Metadata: metadata("k", "v")},
	}, []arrow.UnionTypeCode{0, 1}), "x:+us:0,1{a:c n, b:u [k=v]}"},
	{"dense union", arrow.DenseUnionOf([]arrow.Field{
		{Name: "a", Type: arrow.PrimitiveTypes.Int8}, {Name: "b", Type: arrow.BinaryTypes.String}, {Name: "c", Type: arrow.Null},
	}, []arrow.UnionTypeCode{127, 0, 5}), "x:+ud:127,0,5{a:c, b:u, c:n}"},
	{"union of nothing", arrow.SparseUnionOf(nil, nil), "x:+us:"},
	{"run-end int16", arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, arrow.BinaryTypes.String), "x:+r{run_ends:s, values:u n}"},
	{"run-end int32", notNullable(arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String)), "x:+r{run_ends:i, values:u}"},
	{"run-end int64", arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int64, arrow.ListOf(arrow.Null)), "x:+r{run_ends:l, values:+l n{item:n n}}"},

	{"dictionary int8", dict(arrow.PrimitiveTypes.Int8, arrow.BinaryTypes.String), "x:c<:u n>"},
	{"dictionary int16", dict(arrow.PrimitiveTypes.Int16, arrow.BinaryTypes.String), "x:s<:u n>"},
	{"dictionary int32", dict(arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String), "x:i<:u n>"},
	{"dictionary int64", dict(arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String), "x:l<:u n>"},
	{"dictionary uint8", dict(arrow.PrimitiveTypes.Uint8, arrow.BinaryTypes.String), "x:C<:u n>"},
	{"dictionary uint16", dict(arrow.PrimitiveTypes.Uint16, arrow.BinaryTypes.String), "x:S<:u n>"},
	{"dictionary uint32", dict(arrow.PrimitiveTypes.Uint32, arrow.BinaryTypes.String), "x:I<:u n>"},
	{"dictionary uint64", dict(arrow.PrimitiveTypes.Uint64, arrow.BinaryTypes.String), "x:L<:u n>"},
	{"dictionary ordered", ordered(dict(arrow.PrimitiveTypes.Int32, arrow.BinaryTypes.String)), "x:i o<:u n>"},
	{"dictionary of structs", dict(arrow.PrimitiveTypes.Int32, arrow.StructOf(arrow.Field{Name: "a", Type: arrow.Null})), "x:i<:+s n{a:n}>"},
	{"dictionary of dictionaries", ordered(dict(arrow.PrimitiveTypes.Int32, dict(arrow.PrimitiveTypes.Int8, arrow.BinaryTypes.String))), "x:i o<:c n<:u n>>"},
	{"list of dictionaries", arrow.ListOf(ordered(dict(arrow.PrimitiveTypes.Int8, arrow.ListOf(arrow.BinaryTypes.String)))), "x:+l{item:c no<:+l n{item:u n}>}"},

	{"extension", extension("test.any", "p", arrow.PrimitiveTypes.Int8), "x:c [NAME DATA=p]"},
	{"extension over struct", extension("test.any", "", arrow.StructOf(
		arrow.Field{Name: "a", Type: arrow.PrimitiveTypes.Int8, Metadata: metadata("k", "v")},
	)), "x:+s [NAME DATA=]{a:c [k=v]}"},
	{"extension over list", extension("test.any", "p", arrow.ListOf(arrow.PrimitiveTypes.Int8)), "x:+l [NAME DATA=p]{item:c n}"},
	{"extension over list view", extension("test.any", "p", arrow.ListViewOf(arrow.PrimitiveTypes.Int8)), "x:+vl [NAME DATA=p]{item:c n}"},
	{"extension over fixed size list", extension("test.any", "p", arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int8)), "x:+w:2 [NAME DATA=p]{item:c n}"},
	{"extension over map", extension("test.any", "p", sortedMap(arrow.MapOf(arrow.PrimitiveTypes.Int8, arrow.Null))),
		"x:+m s [NAME DATA=p]{entries:+s{key:c, value:n n}}"},
	{"extension over view", extension("test.any", "p", arrow.BinaryTypes.StringView), "x:vu [NAME DATA=p]"},
	{"extension over union", extension("test.any", "p", arrow.DenseUnionOf([]arrow.Field{{Name: "a", Type: arrow.Null}}, []int8{3})),
		"x:+ud:3 [NAME DATA=p]{a:n}"},
	{"extension over run-end", extension("test.any", "p", arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, arrow.Null)),
		"x:+r [NAME DATA=p]{run_ends:s, values:n n}"},
	{"extension over timestamp", extension("test.any", "p", &arrow.TimestampType{Unit: arrow.Second, TimeZone: "UTC"}), "x:tss:UTC [NAME DATA=p]"},
	{"extension over dictionary", extension("test.any", "p", ordered(dict(arrow.PrimitiveTypes.Int8, arrow.BinaryTypes.String))),
		"x:c o [NAME DATA=p]<:u n>"},
	{"dictionary of extensions", dict(arrow.PrimitiveTypes.Int8, extension("test.any", "p", arrow.BinaryTypes.String)), "x:c<:u n [NAME DATA=p]>"},
	{"extension over dictionary of extensions", extension("test.any", "outer",
		dict(arrow.PrimitiveTypes.Int8, extension("test.any", "inner", arrow.StructOf(arrow.Field{Name: "a", Type: arrow.Null})))),
		"x:c [NAME DATA=outer]<:+s n [NAME DATA=inner]{a:n}>"},
	{"list of extensions", arrow.ListOf(extension("test.any", "p", arrow.ListOf(arrow.Null))), "x:+l{item:+l n [NAME DATA=p]{item:n n}}"},
	{"struct of extensions", arrow.StructOf(arrow.Field{
		Name: "a", Type: extension("test.any", "p", arrow.Null), Metadata: metadata("k", "v"),
	}), "x:+s{a:n [k=v NAME DATA=p]}"},
	{"map of extensions", arrow.MapOf(extension("test.any", "k", arrow.PrimitiveTypes.Int8), extension("test.any", "v", arrow.ListOf(arrow.Null))),
		"x:+m{entries:+s{key:c [NAME DATA=k], value:+l n [NAME DATA=v]{item:n n}}}"},
	{"run-end of extensions", arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, extension("test.any", "p", arrow.StructOf())),
		"x:+r{run_ends:s, values:+s n [NAME DATA=p]}"},
	{"union of extensions", arrow.SparseUnionOf([]arrow.Field{{Name: "a", Type: extension("test.any", "p", arrow.Null)}}, []int8{0}),
		"x:+us:0{a:n [NAME DATA=p]}"},
}

func sortedMap(m *arrow.MapType) *arrow.MapType { m.KeysSorted = true; return m }

func notNullable(r *arrow.RunEndEncodedType) *arrow.RunEndEncodedType {
	r.ValueNullable = false
	return r
}

func dict(index, value arrow.DataType) *arrow.DictionaryType {
	return &arrow.DictionaryType{IndexType: index, ValueType: value}
}

func ordered(d *arrow.DictionaryType) *arrow.DictionaryType { d.Ordered = true; return d }

// extensionKeys spells out the abbreviations of the table.
var extensionKeys = strings.NewReplacer("NAME", "ARROW:extension:name=test.any", "DATA=", "ARROW:extension:metadata=")

// Every type is spelled as the specification says, and survives the round trip.
func TestEveryType(t *testing.T) {
	for _, c := range types {
		t.Run(c.name, func(t *testing.T) {
			noLeak(t)
			for _, f := range []arrow.Field{
				{Name: "x", Type: c.dt},
				{Name: "", Type: c.dt, Nullable: true, Metadata: metadata("b", "1", "a", "\x00\xff", "b", "1")},
			} {
				s := mustExport(t, f)
				if !f.Nullable {
					assert.Equal(t, extensionKeys.Replace(c.want), render(s))
				}
				for s := range take(s) {
					assert.Zero(t, uintptr(unsafe.Pointer(s))%8+s.Children%8+s.Metadata%4, "not aligned: %+v", s)
				}
				back, err := Import(s)
				require.NoError(t, err)
				assert.NoError(t, sameField(f, back))
				assert.Zero(t, s.Release)
			}
		})
	}
}

func TestSchemaSurvivesTheRoundTrip(t *testing.T) {
	var fields []arrow.Field
	for i, c := range types {
		fields = append(fields, arrow.Field{Name: c.name, Type: c.dt, Nullable: i%2 == 0, Metadata: metadata("case", c.name)})
	}
	for _, c := range []struct {
		name   string
		fields []arrow.Field
		md     arrow.Metadata
	}{
		{"every type", fields, metadata("b", "1", "a", "2", "b", "3")},
		{"no fields", nil, arrow.Metadata{}},
		{"metadata of an extension", fields[:1], metadata("ARROW:extension:name", "test.fails")},
	} {
		t.Run(c.name, func(t *testing.T) {
			noLeak(t)
			want := arrow.NewSchema(c.fields, &c.md)
			s := garbage()
			require.NoError(t, ExportSchema(want, s))
			assert.True(t, s.Flags == 0 && s.Name != 0 && abi.String(s.Name) == "" && abi.String(s.Format) == "+s", render(s))
			got, err := ImportSchema(s)
			require.NoError(t, err)
			assert.NoError(t, sameField(arrow.Field{Type: arrow.StructOf(want.Fields()...), Metadata: want.Metadata()},
				arrow.Field{Type: arrow.StructOf(got.Fields()...), Metadata: got.Metadata()}))
			assert.True(t, got.Equal(want), "got %v\nwant %v", got, want)
		})
	}
}

func TestDefaultsOfTheSpecification(t *testing.T) {
	for _, c := range []struct {
		name   string
		format string
		change func(*abi.ArrowSchema)
		want   arrow.Field
	}{
		{"decimal with its 128 bits", "d:19,10,128", nil, arrow.Field{Name: "x", Type: &arrow.Decimal128Type{Precision: 19, Scale: 10}}},
		{"no name", "i", func(s *abi.ArrowSchema) { s.Name = 0 }, arrow.Field{Type: arrow.PrimitiveTypes.Int32}},
		{"empty metadata", "i", func(s *abi.ArrowSchema) { s.Metadata = cBytes(int32Bytes(0)) }, arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int32}},
		{"flags that mean nothing here", "i", func(s *abi.ArrowSchema) { s.Flags = 1 | 4 | 1<<40 }, arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int32}},
	} {
		t.Run(c.name, func(t *testing.T) {
			noLeak(t)
			s := mustExport(t, arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int32})
			s.Format = cString(c.format)
			if c.change != nil {
				c.change(s)
			}
			got, err := Import(s)
			require.NoError(t, err)
			assert.NoError(t, sameField(c.want, got))
		})
	}
}

func TestNamesThatAMapDoesNotKeep(t *testing.T) {
	noLeak(t)
	s := mustExport(t, arrow.Field{Name: "x", Type: sortedMap(arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int8))})
	entries := child(s, 0)
	entries.Name, entries.Flags = cString("key_value"), abi.FlagNullable
	child(entries, 0).Name, child(entries, 0).Flags = cString("keys"), abi.FlagNullable
	child(entries, 1).Name, child(entries, 1).Flags = cString("values"), 0
	f, err := Import(s)
	require.NoError(t, err)
	want := arrow.Field{Name: "x", Type: sortedMap(arrow.MapOfFields(
		arrow.Field{Type: arrow.BinaryTypes.String}, arrow.Field{Type: arrow.PrimitiveTypes.Int8},
	))}
	assert.NoError(t, sameField(want, f))
}

// A map of arrow.MapOf comes back the same to the last bit, for the types that arrow-go compares
// so, and is exported the same again.
func TestMapsAreThoseOfMapOf(t *testing.T) {
	noLeak(t)
	plain := func() *arrow.MapType { return arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int8) }
	full := func() *arrow.MapType {
		m := plain()
		m.SetItemNullable(false)
		return m
	}
	metadata := arrow.NewMetadata([]string{"k"}, []string{"v"})
	noted := arrow.MapOfFields(arrow.Field{Type: arrow.BinaryTypes.String, Metadata: metadata}, arrow.Field{Type: arrow.PrimitiveTypes.Int8})
	for _, m := range []arrow.DataType{
		plain(), sortedMap(plain()), full(), sortedMap(full()), noted,
		arrow.MapOf(arrow.PrimitiveTypes.Int8, plain()), arrow.ListOf(plain()), arrow.StructOf(arrow.Field{Name: "m", Type: plain()}),
	} {
		want := arrow.Field{Name: "x", Type: arrow.LargeListViewOf(m)}
		s := mustExport(t, want)
		before := render(s)
		f, err := Import(s)
		require.NoError(t, err)
		assert.True(t, arrow.TypeEqual(want.Type, f.Type))
		assert.Equal(t, want.Type, f.Type)
		assert.Equal(t, before, text(t, mustExport(t, f)), "exported again")
	}
}

func TestTableHasEachFormatOnce(t *testing.T) {
	texts, keys := 0, 0
	for _, f := range formats {
		texts++
		keys += len(f.types)
		assert.Equal(t, f.params != "", strings.HasSuffix(f.text, ":"), f.text)
		assert.Equal(t, f.params != "", f.write != nil, f.text)
	}
	assert.Len(t, byText, texts)
	assert.Len(t, byKey, keys)
}
