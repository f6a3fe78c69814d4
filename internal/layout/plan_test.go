package layout

import (
	"reflect"
	"runtime"
	"sync"
	"testing"
	"weak"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/schema"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

func schemaOf(types ...arrow.DataType) *arrow.Schema {
	fields := make([]arrow.Field, len(types))
	for i, dt := range types {
		fields[i] = arrow.Field{Name: "c", Type: dt, Nullable: true}
	}
	return arrow.NewSchema(fields, nil)
}

// A plan has what layout's functions say of each type, for all types.
func TestPlanHasWhatTypesSay(t *testing.T) {
	var types []arrow.DataType
	count := 0
	for _, c := range cases.All() {
		types = append(types, c.Type)
		require.NoError(t, CountNodes(c.Type, 1, &count))
	}
	p, err := PlanOf(schemaOf(types...))
	require.NoError(t, err)
	require.Len(t, p.Arrays, count)
	require.Len(t, p.Flat, len(types))
	seen := 0
	var check func(a *Array, dt arrow.DataType)
	check = func(a *Array, dt arrow.DataType) {
		seen++
		st, l := Of(dt)
		assert.Same(t, dt, a.Type)
		assert.Same(t, l, a.Layout)
		children := p.Below(a)
		require.Len(t, children, l.ChildCount(st), dt)
		for i := range l.Buffers {
			bitmap := l.Validity && i == 0
			assert.Equal(t, !bitmap && LeastSize(st, l, i, 5) > 0, a.Needed>>i&1 != 0, "buffer %d of %s", i, dt)
		}
		if l.Kind != Dictionary && len(children) > 0 {
			least, ok := ChildLength(st, 7)
			assert.True(t, ok)
			assert.Equal(t, least, 7*a.ChildElements, dt)
		}
		for i := range children {
			check(&children[i], ChildType(st, i))
		}
	}
	for i, dt := range types {
		check(&p.Arrays[i], dt)
		if n := p.Flat[i]; n != 0 {
			assert.Equal(t, p.Arrays[i].Layout.Buffers, int(n))
			assert.Zero(t, p.Arrays[i].Children)
		}
	}
	assert.Equal(t, count, seen)
}

func TestFlatColumns(t *testing.T) {
	for want, types := range map[uint8][]arrow.DataType{
		2: {arrow.PrimitiveTypes.Int64, arrow.FixedWidthTypes.Boolean, &arrow.FixedSizeBinaryType{ByteWidth: 3}},
		3: {arrow.BinaryTypes.String, arrow.BinaryTypes.LargeBinary, arrow.BinaryTypes.StringView},
		0: {
			arrow.Null, arrow.StructOf(), arrow.ListOf(arrow.PrimitiveTypes.Int8), &arrow.FixedSizeBinaryType{},
			&arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String},
			arrow.SparseUnionOf(nil, nil), arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, arrow.Null),
		},
	} {
		for _, dt := range types {
			p, err := PlanOf(schemaOf(dt))
			require.NoError(t, err, dt)
			assert.Equal(t, []uint8{want}, p.Flat, dt)
		}
	}
}

func TestPlanIsMadeOnce(t *testing.T) {
	s := schemaOf(arrow.PrimitiveTypes.Int64)
	p, err := PlanOf(s)
	require.NoError(t, err)
	again, err := PlanOf(s)
	require.NoError(t, err)
	assert.Same(t, p, again)
	other, err := PlanOf(schemaOf(arrow.PrimitiveTypes.Int64))
	require.NoError(t, err)
	assert.NotSame(t, p, other)
	runtime.GC()
	again, err = PlanOf(s)
	require.NoError(t, err)
	assert.True(t, schema.Same(s, &again.Schema))
	runtime.KeepAlive(p)
}

// A program may assign another schema to a variable, and other values to fields of types.
func TestPlanOfWhatWasChanged(t *testing.T) {
	fixed := &arrow.FixedSizeBinaryType{ByteWidth: 4}
	dictionary := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	inner := &stored{arrow.ExtensionBase{Storage: arrow.FixedWidthTypes.Boolean}}
	outer := &stored{arrow.ExtensionBase{Storage: inner}}
	width := &stored{arrow.ExtensionBase{Storage: &arrow.FixedSizeBinaryType{ByteWidth: 2}}}
	x := arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int64}
	y := arrow.Field{Name: "y", Type: arrow.PrimitiveTypes.Int8}
	members := []arrow.Field{x} // which the union keeps
	union := arrow.DenseUnionOf(members, []arrow.UnionTypeCode{0})
	list, large, view, largeView := arrow.ListOf(union), arrow.LargeListOf(x.Type), arrow.ListViewOf(x.Type), arrow.LargeListViewOf(x.Type)
	fixedList, ree, mapped := arrow.FixedSizeListOf(2, x.Type), arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, x.Type), arrow.MapOf(x.Type, x.Type)
	columns, sparse := arrow.StructOf(x), arrow.SparseUnionOf([]arrow.Field{x}, []arrow.UnionTypeCode{0})
	s := *schemaOf(arrow.ListOf(fixed), arrow.StructOf(arrow.Field{Name: "d", Type: dictionary}),
		arrow.ListOf(outer), width, list, large, view, largeView, fixedList, ree, mapped, columns, sparse)
	first := s
	before, err := PlanOf(&s)
	require.NoError(t, err)
	for name, change := range map[string]func(){
		"schema":     func() { s = *schemaOf(arrow.PrimitiveTypes.Int8) },
		"width":      func() { fixed.ByteWidth++ },
		"indices":    func() { dictionary.IndexType = arrow.PrimitiveTypes.Int32 },
		"dictionary": func() { dictionary.ValueType = arrow.PrimitiveTypes.Int64 },
		"storage":    func() { inner.Storage = arrow.PrimitiveTypes.Int8 },
		"extension":  func() { outer.Storage = arrow.ListOf(inner) },
		"wide":       func() { width.Storage.(*arrow.FixedSizeBinaryType).ByteWidth++ },
		"member":     func() { members[0] = y },
		"list":       func() { *list = *arrow.ListOf(y.Type) },
		"large":      func() { *large = *arrow.LargeListOf(y.Type) },
		"view":       func() { *view = *arrow.ListViewOf(y.Type) },
		"large view": func() { *largeView = *arrow.LargeListViewOf(y.Type) },
		"fixed list": func() { *fixedList = *arrow.FixedSizeListOf(1, x.Type) },
		"run ends":   func() { *ree = *arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, y.Type) },
		"map":        func() { *mapped = *arrow.MapOf(y.Type, x.Type) },
		"struct":     func() { *columns = *arrow.StructOf(x, y) },
		"union":      func() { *sparse = *arrow.SparseUnionOf([]arrow.Field{x, y}, []arrow.UnionTypeCode{0, 1}) },
	} {
		_, err := PlanOf(&s)
		require.NoError(t, err, name)
		change()
		want, err := newPlan(&s)
		require.NoError(t, err, name)
		got, err := PlanOf(&s)
		require.NoError(t, err, name)
		assert.Equal(t, withoutStates(want), withoutStates(got), name)
		s = first
	}
	runtime.KeepAlive(before)
}

func withoutStates(p *Plan) Plan {
	without := *p
	without.states = nil
	return without
}

// stored is an extension type whose storage a program assigns; a nil one panics.
type stored struct{ arrow.ExtensionBase }

func (*stored) ArrayType() reflect.Type                                         { return nil }
func (*stored) ExtensionName() string                                           { return "stored" }
func (*stored) Serialize() string                                               { return "" }
func (*stored) ExtensionEquals(arrow.ExtensionType) bool                        { return false }
func (*stored) Deserialize(arrow.DataType, string) (arrow.ExtensionType, error) { return nil, nil }
func (s *stored) StorageType() arrow.DataType {
	if s.Storage == nil {
		panic("no storage")
	}
	return s.Storage
}

func TestPlanOfATypeThatPanics(t *testing.T) {
	dt := &stored{arrow.ExtensionBase{Storage: arrow.PrimitiveTypes.Int8}}
	s := schemaOf(dt)
	before, err := PlanOf(s)
	require.NoError(t, err)
	dt.Storage = nil
	_, err = PlanOf(s)
	assert.ErrorIs(t, err, arrow.ErrInvalid)
	dt.Storage = arrow.PrimitiveTypes.Int8
	_, err = PlanOf(s)
	assert.NoError(t, err)
	runtime.KeepAlive(before)
}

// Schemas that take turns in a variable keep their plans.
func TestPlansOfOneVariable(t *testing.T) {
	one, other := schemaOf(arrow.PrimitiveTypes.Int64), schemaOf(arrow.PrimitiveTypes.Int8)
	for slotOf(one) == slotOf(other) {
		other = schemaOf(arrow.PrimitiveTypes.Int8)
	}
	first, err := PlanOf(one)
	require.NoError(t, err)
	second, err := PlanOf(other)
	require.NoError(t, err)
	var s arrow.Schema
	for range 3 {
		for schema, want := range map[*arrow.Schema]*Plan{one: first, other: second} {
			s = *schema
			got, err := PlanOf(&s)
			require.NoError(t, err)
			assert.Same(t, want, got)
		}
	}
}

// More schemas than the table has entries, on many goroutines: each gets its own plan.
func TestPlansOfManySchemas(t *testing.T) {
	schemas := make([]*arrow.Schema, 3*planSlots)
	for i := range schemas {
		schemas[i] = schemaOf(arrow.PrimitiveTypes.Int64)
	}
	var all sync.WaitGroup
	for g := range 4 {
		all.Go(func() {
			for i := range schemas {
				s := schemas[(i+g*50)%len(schemas)]
				p, err := PlanOf(s)
				assert.NoError(t, err)
				assert.True(t, schema.Same(s, &p.Schema))
			}
		})
	}
	all.Wait()
}

func TestPlansKeepNoSchemaAlive(t *testing.T) {
	s := schemaOf(arrow.PrimitiveTypes.Int64)
	_, err := PlanOf(s)
	require.NoError(t, err)
	kept := weak.Make(s)
	s = nil
	for range 3 {
		runtime.GC()
	}
	assert.Nil(t, kept.Value())
}

// A type for which CountNodes returns an error has no plan, with the same error.
func TestNoPlan(t *testing.T) {
	deep := arrow.DataType(arrow.Null)
	for range MaxDepth {
		deep = arrow.ListOf(deep)
	}
	for name, dt := range map[string]arrow.DataType{"no layout": &unknown{}, "too deep": deep, "panics": &arrow.DictionaryType{}} {
		count := 0
		want := func() (err error) {
			defer RecoverType(&err)
			return CountNodes(dt, 1, &count)
		}()
		require.Error(t, want, name)
		s := schemaOf(arrow.Null, arrow.StructOf(arrow.Field{Name: "c", Type: dt}))
		if name == "too deep" {
			s = schemaOf(arrow.Null, dt)
		}
		_, err := newPlan(s)
		assert.EqualError(t, err, want.Error(), name)
	}
}

type unknown struct{ arrow.NullType }

func (*unknown) ID() arrow.Type { return 99 }
func (*unknown) Name() string   { return "unknown" }
