package schema

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// emptyCaches makes every schema a new one, for the rest of the test.
func emptyCaches(t *testing.T) {
	t.Helper()
	empty := func() {
		for i := range cacheSlots {
			knownSchemas.Lock()
			knownSchemas.empty(i)
			knownSchemas.Unlock()
			templates.Lock()
			templates.empty(i)
			templates.Unlock()
		}
		for i := range knownSchemas.seen {
			knownSchemas.seen[i].Store(0)
			templates.seen[i].Store(0)
		}
	}
	empty()
	t.Cleanup(empty)
}

// table is a schema of types of all kinds that can change, and some that cannot.
func table(name string) *arrow.Schema {
	md := metadata("a", "1", "b", "")
	return arrow.NewSchema([]arrow.Field{
		{Name: name, Type: arrow.PrimitiveTypes.Int64, Nullable: true, Metadata: md},
		{Name: "zone", Type: &arrow.TimestampType{Unit: arrow.Second, TimeZone: "UTC"}},
		{Name: "list", Type: arrow.ListOf(&arrow.FixedSizeBinaryType{ByteWidth: 3})},
		{Name: "map", Type: arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int8)},
		{Name: "dict", Type: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: &arrow.Decimal128Type{Precision: 9, Scale: 2}}},
		{Name: "struct", Type: arrow.StructOf(arrow.Field{Name: "x", Type: &arrow.Time32Type{Unit: arrow.Second}, Metadata: metadata("a", "1")}, arrow.Field{Name: "y", Type: arrow.Null})},
		{Name: "ree", Type: arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, &arrow.DurationType{Unit: arrow.Second})},
		{Name: "fixed", Type: arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int8)},
		{Name: "union", Type: arrow.SparseUnionOf([]arrow.Field{{Name: "u", Type: &arrow.Time64Type{Unit: arrow.Nanosecond}}}, []arrow.UnionTypeCode{3})},
	}, &md)
}

func exported(t testing.TB, s *arrow.Schema) *abi.ArrowSchema {
	t.Helper()
	out := garbage()
	require.NoError(t, ExportSchema(s, out))
	return out
}

func imported(t testing.TB, s *abi.ArrowSchema) *arrow.Schema {
	t.Helper()
	got, err := ImportSchema(s)
	require.NoError(t, err)
	return got
}

// text returns what a consumer reads, and releases it.
func text(t testing.TB, s *abi.ArrowSchema) string {
	t.Helper()
	defer bridge.CallSchemaRelease(s)
	return render(s)
}

func TestExportsFromATemplateAreTheSame(t *testing.T) {
	noLeak(t)
	emptyCaches(t)
	s := table("first")
	want := text(t, exported(t, s))
	require.Equal(t, want, text(t, exported(t, s)))
	require.NotNil(t, templates.find(addressKey(s)), "no template after two exports")
	for range 3 {
		before := bridge.Blocks()
		out := exported(t, s)
		assert.Equal(t, int64(1), bridge.Blocks()-before)
		assert.Equal(t, want, render(out))
		moved := move(child(child(out, 5), 0))
		bridge.CallSchemaRelease(out)
		assert.Equal(t, "x:tts [a=1]", render(moved))
		bridge.CallSchemaRelease(moved)
	}
	assert.Equal(t, text(t, exported(t, table("first"))), want)
}

func TestRepeatedSchemasCostNothing(t *testing.T) {
	if underASan {
		t.Skip("AddressSanitizer allocates")
	}
	noLeak(t)
	emptyCaches(t)
	s, out := table("first"), new(abi.ArrowSchema)
	export := func() {
		require.NoError(t, ExportSchema(s, out))
	}
	for range 3 {
		export()
		imported(t, out)
	}
	assert.Zero(t, testing.AllocsPerRun(20, func() {
		export()
		bridge.CallSchemaRelease(out)
	}), "allocations of an export")
	assert.LessOrEqual(t, testing.AllocsPerRun(20, func() {
		export()
		imported(t, out)
	}), 1.0, "allocations of an import")
}

func TestEqualTreesAreTheSameSchema(t *testing.T) {
	noLeak(t)
	emptyCaches(t)
	first := imported(t, exported(t, table("first")))
	second := imported(t, exported(t, table("first")))
	third := imported(t, exported(t, table("first")))
	assert.NotSame(t, first, second)
	assert.Same(t, second, third)
	require.NoError(t, sameFields(first, third))
	assert.True(t, first.Metadata().Equal(third.Metadata()))
}

func sameFields(a, b *arrow.Schema) error {
	if a.NumFields() != b.NumFields() {
		return fmt.Errorf("%d and %d fields", a.NumFields(), b.NumFields())
	}
	for i := range a.NumFields() {
		if err := sameField(a.Field(i), b.Field(i)); err != nil {
			return err
		}
	}
	return nil
}

// changedAfterGood imports a tree that is changed, after the caches have the tree as it was.
func changedAfterGood(t *testing.T, change func(*abi.ArrowSchema)) (*arrow.Schema, error) {
	t.Helper()
	t.Cleanup(func() { foreign = nil })
	emptyCaches(t)
	for range 3 {
		imported(t, exported(t, table("first")))
	}
	s := exported(t, table("first"))
	was := take(s)
	change(s)
	countReleases(t, func(*abi.ArrowSchema) { was.restore(); bridge.CallSchemaRelease(s) })
	return ImportSchema(s)
}

// Each part of each struct is compared.
func TestTreesThatDifferAreReadAnew(t *testing.T) {
	for name, change := range map[string]func(s *abi.ArrowSchema){
		"format":         func(s *abi.ArrowSchema) { child(s, 0).Format = cString("L") },
		"longer format":  func(s *abi.ArrowSchema) { child(s, 1).Format = cString("tss:UTC+1") },
		"shorter format": func(s *abi.ArrowSchema) { child(s, 1).Format = cString("tss:") },
		"name":           func(s *abi.ArrowSchema) { child(s, 3).Name = cString("mop") },
		"longer name":    func(s *abi.ArrowSchema) { child(s, 3).Name = cString("maps") },
		"no name":        func(s *abi.ArrowSchema) { child(s, 3).Name = 0 },
		"flags":          func(s *abi.ArrowSchema) { child(s, 1).Flags ^= abi.FlagNullable },
		"name below":     func(s *abi.ArrowSchema) { child(child(s, 5), 1).Name = cString("z") },
		"values":         func(s *abi.ArrowSchema) { dictionary(child(s, 4)).Format = cString("d:9,3") },
		"no metadata":    func(s *abi.ArrowSchema) { child(s, 0).Metadata = 0 },
		"metadata": func(s *abi.ArrowSchema) {
			child(s, 0).Metadata = cBytes(pairs{[]string{"a", "b"}, []string{"2", ""}}.appendTo(nil))
		},
		"longer metadata": func(s *abi.ArrowSchema) {
			child(s, 0).Metadata = cBytes(pairs{[]string{"a", "b"}, []string{"1", "x"}}.appendTo(nil))
		},
		"fewer pairs": func(s *abi.ArrowSchema) {
			child(s, 0).Metadata = cBytes(pairs{[]string{"a"}, []string{"1"}}.appendTo(nil))
		},
		"metadata of a schema": func(s *abi.ArrowSchema) { s.Metadata = 0 },
		"fewer children":       func(s *abi.ArrowSchema) { s.NChildren-- },
		"dictionary":           func(s *abi.ArrowSchema) { child(s, 4).Dictionary = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			var want string
			got, err := changedAfterGood(t, func(s *abi.ArrowSchema) {
				change(s)
				want = render(s)
			})
			require.NoError(t, err)
			assert.Equal(t, want, text(t, exported(t, got)))
		})
	}
}

// What is not valid is refused, even if a tree like it was read before.
func TestBrokenTreesAreRefusedAfterGoodOnes(t *testing.T) {
	for name, change := range map[string]func(s *abi.ArrowSchema){
		"no format":         func(s *abi.ArrowSchema) { child(s, 2).Format = 0 },
		"no format of root": func(s *abi.ArrowSchema) { s.Format = 0 },
		"no children":       func(s *abi.ArrowSchema) { child(s, 5).Children = 0 },
		"no child":          func(s *abi.ArrowSchema) { child(s, 5).Children = pointers(child(child(s, 5), 0), nil) },
		"a released child":  func(s *abi.ArrowSchema) { child(child(s, 5), 1).Release = 0 },
		"released values":   func(s *abi.ArrowSchema) { dictionary(child(s, 4)).Release = 0 },
		"negative count":    func(s *abi.ArrowSchema) { child(s, 5).NChildren = -1 },
		"negative length":   func(s *abi.ArrowSchema) { child(s, 0).Metadata = cBytes(int32Bytes(2, -1)) },
		"negative pairs":    func(s *abi.ArrowSchema) { child(s, 0).Metadata = cBytes(int32Bytes(-2)) },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := changedAfterGood(t, change)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
		})
	}
}

// A name that is longer than memory that may be read ends the comparison, not the process.
func TestComparisonReadsNothingBehindADifference(t *testing.T) {
	for _, row := range []struct {
		memory, known string
		same          bool
	}{{"ab\x00", "ab", true}, {"ab\x00", "abc", false}, {"abc\x00", "ab", false}, {"\x00", "", true}, {"\x00", "x", false}} {
		s := cBytes([]byte(row.memory)) // AddressSanitizer and checkptr know its end
		assert.Equal(t, row.same, sameText(s, row.known), "%q and %q", row.memory, row.known)
	}
	foreign = nil
}

// A type that a program changes is not taken for what it was, in either direction.
func TestChangedTypesAreNotTakenFromACache(t *testing.T) {
	column := func(s *arrow.Schema, i int) arrow.DataType { return s.Field(i).Type }
	for name, change := range map[string]func(s *arrow.Schema){
		"zone":     func(s *arrow.Schema) { column(s, 1).(*arrow.TimestampType).TimeZone = "Z" },
		"unit":     func(s *arrow.Schema) { column(s, 1).(*arrow.TimestampType).Unit = arrow.Nanosecond },
		"list":     func(s *arrow.Schema) { column(s, 2).(*arrow.ListType).SetElemNullable(false) },
		"metadata": func(s *arrow.Schema) { column(s, 2).(*arrow.ListType).SetElemMetadata(metadata("x", "y")) },
		"width":    func(s *arrow.Schema) { column(s, 2).(*arrow.ListType).Elem().(*arrow.FixedSizeBinaryType).ByteWidth++ },
		"sorted":   func(s *arrow.Schema) { column(s, 3).(*arrow.MapType).KeysSorted = true },
		"item":     func(s *arrow.Schema) { column(s, 3).(*arrow.MapType).SetItemNullable(false) },
		"ordered":  func(s *arrow.Schema) { column(s, 4).(*arrow.DictionaryType).Ordered = true },
		"index":    func(s *arrow.Schema) { column(s, 4).(*arrow.DictionaryType).IndexType = arrow.PrimitiveTypes.Int32 },
		"value":    func(s *arrow.Schema) { column(s, 4).(*arrow.DictionaryType).ValueType = arrow.Null },
		"precision": func(s *arrow.Schema) {
			column(s, 4).(*arrow.DictionaryType).ValueType.(*arrow.Decimal128Type).Precision++
		},
		"scale":             func(s *arrow.Schema) { column(s, 4).(*arrow.DictionaryType).ValueType.(*arrow.Decimal128Type).Scale++ },
		"run ends":          func(s *arrow.Schema) { column(s, 6).(*arrow.RunEndEncodedType).ValueNullable = false },
		"schema":            func(s *arrow.Schema) { *s = *table("other") },
		"codes":             func(s *arrow.Schema) { column(s, 8).(*arrow.SparseUnionType).TypeCodes()[0]++ },
		"value of metadata": func(s *arrow.Schema) { s.Metadata().Values()[0] = "2" },
		"key of a field":    func(s *arrow.Schema) { s.Field(0).Metadata.Keys()[0] = "c" },
		"value below":       func(s *arrow.Schema) { column(s, 5).(*arrow.StructType).Field(0).Metadata.Values()[0] = "2" },
		"other list":        func(s *arrow.Schema) { *column(s, 2).(*arrow.ListType) = *arrow.ListOf(arrow.Null) },
		"other struct": func(s *arrow.Schema) {
			*column(s, 5).(*arrow.StructType) = *arrow.StructOf(arrow.Field{Name: "z", Type: arrow.Null})
		},
		"other union": func(s *arrow.Schema) {
			*column(s, 8).(*arrow.SparseUnionType) = *arrow.SparseUnionOf([]arrow.Field{{Name: "v", Type: arrow.Null}}, []arrow.UnionTypeCode{3})
		},
		"fixed lists": func(s *arrow.Schema) { column(s, 7).(*arrow.FixedSizeListType).SetElemNullable(false) },
	} {
		t.Run(name, func(t *testing.T) {
			noLeak(t)
			emptyCaches(t)
			s := table("first")
			for range 3 {
				text(t, exported(t, s))
			}
			before := text(t, exported(t, s))
			change(s)
			after := text(t, exported(t, s))
			assert.NotEqual(t, before, after, "an export of a changed schema")
			emptyCaches(t)
			assert.Equal(t, text(t, exported(t, s)), after)

			var given *arrow.Schema
			for range 3 {
				given = imported(t, exported(t, table("first")))
			}
			change(given)
			again := imported(t, exported(t, table("first")))
			assert.NotSame(t, given, again)
			assert.Equal(t, before, text(t, exported(t, again)), "an import after a change of the schema that was imported before")
		})
	}
}

// changing is a type and a function that changes it.
type changing struct {
	dt     arrow.DataType
	change func()
}

// assigned is a type that another one is assigned to.
func assigned[T any, P interface {
	*T
	arrow.DataType
}](dt, other P) changing {
	return changing{dt, func() { *dt = *other }}
}

func TestEachTypeThatCanChange(t *testing.T) {
	x, y := arrow.Field{Name: "x", Type: arrow.Null}, arrow.Field{Name: "y", Type: arrow.Null}
	int16s, int32s := arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32
	sparse := arrow.SparseUnionOf([]arrow.Field{x}, []arrow.UnionTypeCode{0})
	dense := arrow.DenseUnionOf([]arrow.Field{x}, []arrow.UnionTypeCode{0})
	for _, row := range []changing{
		{sparse, func() { sparse.TypeCodes()[0]++ }},
		{dense, func() { dense.TypeCodes()[0]++ }},
		assigned(sparse, arrow.SparseUnionOf([]arrow.Field{y}, sparse.TypeCodes())),
		assigned(dense, arrow.DenseUnionOf([]arrow.Field{y}, dense.TypeCodes())),
		assigned(arrow.StructOf(x), arrow.StructOf(y)),
		assigned(arrow.ListOfField(x), arrow.ListOfField(y)),
		assigned(arrow.LargeListOfField(x), arrow.LargeListOfField(y)),
		assigned(arrow.ListViewOfField(x), arrow.ListViewOfField(y)),
		assigned(arrow.LargeListViewOfField(x), arrow.LargeListViewOfField(y)),
		assigned(arrow.FixedSizeListOfField(1, x), arrow.FixedSizeListOfField(1, y)),
		assigned(arrow.MapOf(x.Type, x.Type), arrow.MapOf(x.Type, x.Type)),
		assigned(arrow.RunEndEncodedOf(int16s, x.Type), arrow.RunEndEncodedOf(int32s, x.Type)),
		assigned(dict(int16s, x.Type), dict(int32s, x.Type)),
		assigned(&arrow.FixedSizeBinaryType{ByteWidth: 1}, &arrow.FixedSizeBinaryType{ByteWidth: 2}),
		assigned(&arrow.TimestampType{TimeZone: "A"}, &arrow.TimestampType{TimeZone: "B"}),
		assigned(&arrow.Time32Type{Unit: arrow.Second}, &arrow.Time32Type{Unit: arrow.Millisecond}),
		assigned(&arrow.Time64Type{Unit: arrow.Microsecond}, &arrow.Time64Type{Unit: arrow.Nanosecond}),
		assigned(&arrow.DurationType{Unit: arrow.Second}, &arrow.DurationType{Unit: arrow.Nanosecond}),
		assigned(&arrow.Decimal32Type{Scale: 1}, &arrow.Decimal32Type{Scale: 2}),
		assigned(&arrow.Decimal64Type{Scale: 1}, &arrow.Decimal64Type{Scale: 2}),
		assigned(&arrow.Decimal128Type{Scale: 1}, &arrow.Decimal128Type{Scale: 2}),
		assigned(&arrow.Decimal256Type{Scale: 1}, &arrow.Decimal256Type{Scale: 2}),
	} {
		var s States
		s.Add(row.dt)
		assert.True(t, s.Same(), row.dt)
		row.change()
		assert.False(t, s.Same(), row.dt)
	}
}

// A union keeps the slices that it was made of.
func TestChangedSlicesOfUnions(t *testing.T) {
	noLeak(t)
	emptyCaches(t)
	fields := []arrow.Field{{Name: "u", Type: arrow.PrimitiveTypes.Int64}}
	s := arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.ListOf(arrow.DenseUnionOf(fields, []arrow.UnionTypeCode{3}))}}, nil)
	for range 3 {
		text(t, exported(t, s))
	}
	for _, other := range []arrow.Field{{Name: "v", Type: fields[0].Type}, {Name: "v", Type: arrow.Null}, {Name: "v", Type: arrow.Null, Nullable: true}} {
		before := text(t, exported(t, s))
		fields[0] = other
		assert.NotEqual(t, before, text(t, exported(t, s)), "%v", other)
	}
}

// Extension types come from a registry and from code of the program, which may change.
func TestExtensionTypesAreReadEachTime(t *testing.T) {
	noLeak(t)
	emptyCaches(t)
	md := metadata(extensionName, "test.sometimes", extensionMetadata, "")
	s := arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Int64, Metadata: md}}, nil)
	for range 4 {
		assert.Equal(t, arrow.INT64, imported(t, exported(t, s)).Field(0).Type.ID())
	}
	serialized := "1"
	any := &testType{name: "test.sometimes"}
	any.rebuild = func(storage arrow.DataType, data string) (arrow.ExtensionType, error) {
		return &testType{ExtensionBase: arrow.ExtensionBase{Storage: storage}, name: "test.sometimes", data: serialized}, nil
	}
	require.NoError(t, arrow.RegisterExtensionType(any))
	var got *arrow.Schema
	for range 4 {
		got = imported(t, exported(t, s))
		assert.Equal(t, arrow.EXTENSION, got.Field(0).Type.ID())
	}
	before := text(t, exported(t, got))
	for range 4 {
		assert.Equal(t, before, text(t, exported(t, got)))
	}
	got.Field(0).Type.(*testType).data = "2"
	assert.NotEqual(t, before, text(t, exported(t, got)))
	require.NoError(t, arrow.UnregisterExtensionType("test.sometimes"))
	assert.Equal(t, arrow.INT64, imported(t, exported(t, s)).Field(0).Type.ID())
}
