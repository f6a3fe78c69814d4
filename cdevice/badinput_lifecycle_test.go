package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// Both structs are consumed whichever of them is bad.
func TestBadSchemaReleasesTheArrayToo(t *testing.T) {
	leaf := func(a *arena, format string) *abi.ArrowSchema {
		s, _ := foreignSchema(a, format)
		return s
	}
	columns := func(a *arena, formats ...string) (*abi.ArrowSchema, []int64) {
		var fields []*abi.ArrowSchema
		for _, format := range formats {
			fields = append(fields, leaf(a, format))
		}
		return foreignSchema(a, "+s", fields...)
	}
	for _, row := range []struct {
		name   string
		way    way
		base   string
		schema func(a *arena) (*abi.ArrowSchema, []int64)
		want   string
		is     error
	}{
		{"empty format", asArray, "int64", func(a *arena) (*abi.ArrowSchema, []int64) { return foreignSchema(a, "") }, "ArrowSchema.format = \"\"", arrow.ErrInvalid},
		{"format without its colon", asArray, "fixed_size_binary", func(a *arena) (*abi.ArrowSchema, []int64) { return foreignSchema(a, "w3") }, "ArrowSchema.format = \"w3\"", arrow.ErrInvalid},
		{"format NULL", asArray, "int64", func(a *arena) (*abi.ArrowSchema, []int64) {
			s, counts := foreignSchema(a, "l")
			s.Format = 0
			return s, counts
		}, "ArrowSchema.format = NULL", arrow.ErrInvalid},
		{"list without a child", asArray, "list", func(a *arena) (*abi.ArrowSchema, []int64) { return foreignSchema(a, "+l") }, "ArrowSchema.n_children = 0", arrow.ErrInvalid},
		{"run ends of floats", asArray, "run_end_encoded_int32", func(a *arena) (*abi.ArrowSchema, []int64) {
			return foreignSchema(a, "+r", leaf(a, "f"), leaf(a, "u"))
		}, "ArrowSchema.children[0] = *arrow.Float32Type, want int16, int32 or int64 run ends", arrow.ErrInvalid},
		{"map of no pair", asArray, "map", func(a *arena) (*abi.ArrowSchema, []int64) {
			return foreignSchema(a, "+m", leaf(a, "u"))
		}, "ArrowSchema.children[0] = *arrow.StringType, want a struct of a key and a value", arrow.ErrInvalid},
		{"batch of a leaf", asBatch, "int64", func(a *arena) (*abi.ArrowSchema, []int64) { return foreignSchema(a, "l") }, "ArrowSchema.format = \"l\"", arrow.ErrInvalid},
		{"batch with a bad column", asBatch, "int64", func(a *arena) (*abi.ArrowSchema, []int64) { return columns(a, "l", "?") }, "ArrowSchema.children[1].format = \"?\"", arrow.ErrNotImplemented},
		{"child released", asBatch, "int64", func(a *arena) (*abi.ArrowSchema, []int64) {
			s, counts := columns(a, "l", "l")
			abi.At[abi.ArrowSchema](abi.Slice[uintptr](s.Children, 2)[1]).Release = 0
			return s, counts
		}, "ArrowSchema.children[1].release = NULL", cdevice.ErrReleased},

		{"another type", asArray, "int64", func(a *arena) (*abi.ArrowSchema, []int64) { return foreignSchema(a, "u") }, "ArrowDeviceArray.array.n_buffers = 2, want 3 for utf8", arrow.ErrInvalid},
		{"fewer columns", asBatch, "int64", func(a *arena) (*abi.ArrowSchema, []int64) { return columns(a, "l") }, "ArrowDeviceArray.array.n_children = 2, want 1 for the fields of the schema", arrow.ErrInvalid},
		{"no columns", asBatch, "int64", func(a *arena) (*abi.ArrowSchema, []int64) { return columns(a) }, "ArrowDeviceArray.array.n_children = 2, want 0 for the fields of the schema", arrow.ErrInvalid},
		{"more columns", asBatch, "int64", func(a *arena) (*abi.ArrowSchema, []int64) { return columns(a, "l", "l", "l") }, "ArrowDeviceArray.array.n_children = 2, want 3 for the fields of the schema", arrow.ErrInvalid},
		{"a column of another type", asBatch, "int64", func(a *arena) (*abi.ArrowSchema, []int64) { return columns(a, "l", "n") }, "ArrowDeviceArray.array.children[1].n_buffers = 2, want 0 for null", arrow.ErrInvalid},
	} {
		t.Run(row.name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				f := foreignCase(t, row.base, row.way)
				defer f.free()
				f.kind = k
				s, counts := row.schema(f.arena)
				got, err := f.importWith(cdevice.SchemaFromPtr(addressOf(s)))
				assert.Nil(t, got)
				assert.ErrorContains(t, err, k.in(row.want))
				assert.ErrorIs(t, err, row.is)
				assertReleased(t, f, 1)
				assert.Zero(t, s.Release)
				assert.Equal(t, []int64{1, 0}, counts, "calls of the schema's release callbacks")
			})
		})
	}
}

func TestReleasedOrMissingStructs(t *testing.T) {
	const array, schema = "ArrowDeviceArray.array.release = NULL", "ArrowSchema.release = NULL"
	for _, row := range []struct {
		name                         string
		arrayReleased, arrayMissing  bool
		schemaReleased, schemaAbsent bool
		want                         string
		is                           error
	}{
		{name: "array released", arrayReleased: true, want: array, is: cdevice.ErrReleased},
		{name: "schema released", schemaReleased: true, want: schema, is: cdevice.ErrReleased},
		{name: "both released", arrayReleased: true, schemaReleased: true, want: "release = NULL", is: cdevice.ErrReleased},
		{name: "array missing", arrayMissing: true, want: "ArrowDeviceArray = NULL, want a struct", is: arrow.ErrInvalid},
		{name: "schema missing", schemaAbsent: true, want: "ArrowSchema = NULL, want a struct", is: arrow.ErrInvalid},
		{name: "both missing", arrayMissing: true, schemaAbsent: true, want: "= NULL, want a struct", is: arrow.ErrInvalid},
		{name: "array missing, schema released", arrayMissing: true, schemaReleased: true, want: schema, is: cdevice.ErrReleased},
		{name: "array released, schema missing", arrayReleased: true, schemaAbsent: true, want: "ArrowSchema = NULL, want a struct", is: arrow.ErrInvalid},
	} {
		for _, w := range []way{asArray, asBatch} {
			body := func(t *testing.T, k kind) {
				f := foreignCase(t, "int64", w)
				f.kind = k
				defer f.free()
				leaf, _ := foreignSchema(f.arena, "l")
				s, schemaCounts := foreignSchema(f.arena, "+s", leaf)
				if w == asArray {
					s, schemaCounts = foreignSchema(f.arena, "l")
				}
				wantArray, wantSchema := int64(1), int64(1)
				if row.arrayReleased {
					f.device.Array.Release, wantArray = 0, 0
				}
				if row.schemaReleased {
					s.Release, wantSchema = 0, 0
				}
				given, c := f.c(), cdevice.SchemaFromPtr(addressOf(s))
				if row.arrayMissing {
					given, wantArray = k.noArray, 0
				}
				if row.schemaAbsent {
					c, wantSchema = nil, 0
				}
				got, err := importFrom(given, c, w == asBatch)
				assert.Nil(t, got)
				assert.ErrorContains(t, err, k.in(row.want))
				assert.ErrorIs(t, err, row.is)
				assert.Equal(t, []int64{wantArray, 0}, f.counts)
				assert.Equal(t, []int64{wantSchema, 0}, schemaCounts)
			}
			t.Run(row.name+"/"+string(w), func(t *testing.T) { eachKind(t, body) })
		}
	}
}

// A consumer's release ends in Go code, which may release, export and import.
func TestReleaseInsideACallback(t *testing.T) {
	checkLeaks(t)
	f := foreignCase(t, "utf8", asArray)
	defer f.free()
	b := ownedBatch(t, func() {
		got, err := f.importKnown()
		require.NoError(t, err)
		passOn(t, got)
		got.Release()
	})
	var out abi.ArrowDeviceArray
	require.NoError(t, cdevice.ExportRecordBatch(b, abi.As[cdevice.CArrowDeviceArray](&out), nil))
	b.Release()
	assert.Zero(t, f.counts[0])
	require.NoError(t, cpeer.ReleaseOnThread(&out.Array))
	assertReleased(t, f, 1)
}

// arrow-go refuses some arrays with a panic, when it has taken references already.
func TestReadThatIsRefusedLeaksNothing(t *testing.T) {
	mapType := arrow.MapOf(arrow.BinaryTypes.String, arrow.PrimitiveTypes.Int64)
	const maps = `[{"key":"a","value":1}]`
	noKeys := func(f *foreignArray, n *foreignNode) {
		keys := n.children[0].children[0]
		keys.pointers[0], keys.NullCount = sliceAddress(allocC[byte](f.arena, slack)), keys.Length
	}
	noEnds := func(f *foreignArray, n *foreignNode) {
		ends := n.children[0]
		ends.pointers[0], ends.NullCount = sliceAddress(allocC[byte](f.arena, slack)), -1
	}
	runs := arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64)
	for _, row := range []struct {
		name string
		typ  arrow.DataType
		text string
		set  corruption
	}{
		{"run ends below a struct", arrow.StructOf(arrow.Field{Name: "r", Type: runs}), `[{"r":1}]`, inChild(0, noEnds)},
		{"map keys", mapType, `[` + maps + `]`, noKeys},
		{"map keys below a list", arrow.ListOf(mapType), `[[` + maps + `]]`, inChild(0, noKeys)},
		{"map keys below a struct", arrow.StructOf(arrow.Field{Name: "m", Type: mapType}), `[{"m":` + maps + `}]`, inChild(0, noKeys)},
		{"map keys below a fixed size list", arrow.FixedSizeListOf(1, mapType), `[[` + maps + `]]`, inChild(0, noKeys)},
	} {
		for _, w := range []way{asArray, asBatch} {
			t.Run(row.name+"/"+string(w), func(t *testing.T) {
				checkLeaks(t)
				f := newForeign(t, fromJSON(t, row.typ, row.text), w)
				defer f.free()
				row.set(f, f.base)
				got, err := f.importKnown()
				require.NoError(t, err)
				noPanic(t, "read", func() {
					_, copied := readAll(t, got) // a view does not count nulls, and may not notice
					assert.ErrorIs(t, copied, arrow.ErrInvalid)
				})
				noPanic(t, "release", got.Release)
				assertReleased(t, f, 1)
			})
		}
	}
}
