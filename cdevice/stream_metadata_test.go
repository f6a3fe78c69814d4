package cdevice_test

import (
	"reflect"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// The batches of a stream have the metadata of its schema, even if their source has other metadata: arrow-go
// compares schemas and types without it.

// noted is metadata with a value under "from".
func noted(from string) arrow.Metadata {
	return arrow.NewMetadata([]string{"from"}, []string{from})
}

// annotated is a schema whose metadata, and that of every field at every depth, is of one
// source. So are the names of the first field and of list elements, for "name".
func annotated(from string, at map[string]bool) *arrow.Schema {
	note := func(where string) arrow.Metadata {
		if at[where] || at["everywhere"] {
			return noted(from)
		}
		return noted("both")
	}
	number := arrow.Field{Name: "number", Type: arrow.PrimitiveTypes.Int64, Metadata: note("nested")}
	inner := arrow.StructOf(number)
	element := arrow.Field{Name: "item", Type: inner, Nullable: true, Metadata: note("list")}
	if at["name"] {
		element.Name = from
	}
	key := arrow.Field{Name: "key", Type: arrow.BinaryTypes.String, Metadata: note("map")}
	dictionary := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	fields := []arrow.Field{
		{Name: "n", Type: arrow.PrimitiveTypes.Int64, Metadata: note("field")},
		{Name: "struct", Type: inner},
		{Name: "list", Type: arrow.ListOfField(element)},
		{Name: "fixed", Type: arrow.FixedSizeListOfField(2, element)},
		{Name: "map", Type: arrow.MapOfFields(key, arrow.Field{Name: "value", Type: inner, Nullable: true})},
		{Name: "union", Type: arrow.DenseUnionOf([]arrow.Field{number}, []arrow.UnionTypeCode{0})},
		{Name: "runs", Type: arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, inner)},
		{Name: "dictionary", Type: dictionary},
		{Name: "extension", Type: extensions.NewOpaqueType(inner, "thing", "us")},
	}
	if at["name"] {
		fields[0].Name = from
	}
	md := note("schema")
	return arrow.NewSchema(fields, &md)
}

// annotatedBatch is a batch of two rows with the schema.
func annotatedBatch(t *testing.T, schema *arrow.Schema) arrow.RecordBatch {
	t.Helper()
	columns := make([]arrow.Array, schema.NumFields())
	for i, text := range []string{
		`[1,2]`, `[{"number":1},{"number":2}]`, `[[{"number":1}],[]]`, `[[{"number":1},{"number":2}],[{"number":3},{"number":4}]]`,
		`[[{"key":"a","value":{"number":1}}],[]]`, `[[0,1],[0,2]]`, ``, `["a","b"]`, ``,
	} {
		switch dt := schema.Field(i).Type.(type) {
		case *arrow.RunEndEncodedType:
			ends, values := fromJSON(t, dt.RunEnds(), `[1,2]`), fromJSON(t, dt.Encoded(), `[{"number":1},{"number":2}]`)
			data := array.NewData(dt, 2, []*memory.Buffer{nil}, []arrow.ArrayData{ends.Data(), values.Data()}, 0, 0)
			columns[i] = array.NewRunEndEncodedData(data)
			data.Release()
		case arrow.ExtensionType:
			columns[i] = array.NewExtensionArrayWithStorage(dt, fromJSON(t, dt.StorageType(), `[{"number":1},{"number":2}]`))
		default:
			columns[i] = fromJSON(t, dt, text)
		}
	}
	rec := array.NewRecordBatch(schema, columns, 2)
	t.Cleanup(rec.Release)
	return rec
}

// sameFields asserts that fields do not differ at any depth, metadata included.
func sameFields(t *testing.T, path string, want, got arrow.Field) {
	t.Helper()
	assert.Equal(t, want.Name, got.Name, path)
	assert.Equal(t, want.Nullable, got.Nullable, path)
	assert.Equal(t, want.Metadata.ToMap(), got.Metadata.ToMap(), path)
	sameTypes(t, path, want.Type, got.Type)
}

func sameTypes(t *testing.T, path string, want, got arrow.DataType) {
	t.Helper()
	require.Equal(t, want.ID(), got.ID(), path)
	switch want := want.(type) {
	case arrow.ExtensionType:
		sameTypes(t, path+".storage", want.StorageType(), got.(arrow.ExtensionType).StorageType())
	case arrow.NestedType:
		for i, f := range want.Fields() {
			sameFields(t, path+"."+f.Name, f, got.(arrow.NestedType).Fields()[i])
		}
	}
}

// asRead asserts that an arrow-go batch has the schema, and its columns the types in it.
func asRead(t *testing.T, want *arrow.Schema, rec arrow.RecordBatch) {
	t.Helper()
	assert.Equal(t, want.Metadata(), rec.Schema().Metadata())
	require.Equal(t, want.NumFields(), rec.Schema().NumFields())
	for i := range want.NumFields() {
		sameFields(t, want.Field(i).Name, want.Field(i), rec.Schema().Field(i))
	}
	for i, column := range rec.Columns() {
		sameTypes(t, want.Field(i).Name, want.Field(i).Type, column.DataType())
		if nested, ok := column.(*array.Struct); ok {
			sameTypes(t, "child", want.Field(i).Type.(*arrow.StructType).Field(0).Type, nested.Field(0).DataType())
		}
	}
}

// told is an arrow-go reader of one batch for ever, whose schema differs from the batch's.
type told struct {
	panicking
	rec    arrow.RecordBatch
	schema *arrow.Schema
}

func (t told) Schema() *arrow.Schema          { return t.schema }
func (told) Next() bool                       { return true }
func (t told) RecordBatch() arrow.RecordBatch { return t.rec }
func (told) Err() error                       { return nil }

func TestBatchesHaveTheMetadataOfTheirReader(t *testing.T) {
	for _, differs := range []string{"nothing", "schema", "field", "nested", "list", "map", "name", "everywhere"} {
		t.Run(differs, func(t *testing.T) {
			checkLeaks(t)
			of := map[string]bool{differs: true}
			readers, batches := annotated("reader", of), annotated("batch", of)
			rec := annotatedBatch(t, batches)
			for name, open := range map[string]func() (*cdevice.RecordReader, error){
				"wrapped": func() (*cdevice.RecordReader, error) {
					return cdevice.WrapRecordReader(told{rec: rec, schema: readers}, device.CPUDevice())
				},
				"given": func() (*cdevice.RecordReader, error) {
					return cdevice.NewRecordReader(readers, device.CPU, yielding(nil, wrap(t, rec)))
				},
				"imported": func() (*cdevice.RecordReader, error) {
					b := wrap(t, rec)
					out := garbageArray()
					require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
					in, err := cdevice.ImportRecordBatchWithSchema(out, batches)
					require.NoError(t, err)
					defer in.Release()
					in.Retain()
					return readerFunc(readers, device.CPU, func() (*cdevice.RecordBatch, error) { return in, nil }, nil)
				},
				"copied": func() (*cdevice.RecordReader, error) {
					src, err := cdevice.WrapRecordReader(told{rec: rec, schema: readers}, device.CPUDevice())
					require.NoError(t, err)
					defer src.Release()
					return src.CopyTo(background, device.CPUDevice())
				},
			} {
				t.Run(name, func(t *testing.T) {
					r, err := open()
					require.NoError(t, err)
					defer func() { assert.NoError(t, r.Close(background)) }() // which waits for a copy of rec that is under way
					defer r.Release()
					h := r.HostReader(background, nil)
					defer h.Release()
					require.True(t, h.Next(), "%v", h.Err())
					asRead(t, h.Schema(), h.RecordBatch())
					asRead(t, readers, h.RecordBatch())
					for i, column := range rec.Columns() {
						assert.True(t, array.Equal(column, h.RecordBatch().Column(i)), "column %d", i)
					}
				})
			}
			b, err := cdevice.WrapRecordReader(told{rec: rec, schema: readers}, device.CPUDevice())
			require.NoError(t, err)
			defer b.Release()
			require.True(t, b.Next())
			view, err := b.RecordBatch().HostView(background)
			require.NoError(t, err)
			assert.Equal(t, differs == "nothing", view == rec, "the batch itself, if it is the same")
			asRead(t, readers, view)
			view.Release()
			copied, err := b.RecordBatch().CopyToHost(background, nil)
			require.NoError(t, err)
			asRead(t, readers, copied)
			copied.Release()
			column := b.RecordBatch().Column(1)
			sameFields(t, "column", readers.Field(1), column.Field())
			alone, err := column.HostView(background)
			require.NoError(t, err)
			sameTypes(t, "column", readers.Field(1).Type, alone.DataType())
			alone.Release()
			column.Release()
		})
	}
}

// alike is an extension type that calls itself equal to any other of its kind, without a look at
// their storage types.
type alike struct{ arrow.ExtensionBase }

func (alike) ExtensionName() string                    { return "alike" }
func (alike) ExtensionEquals(arrow.ExtensionType) bool { return true }
func (alike) ArrayType() reflect.Type                  { return reflect.TypeFor[alikeArray]() }
func (alike) Serialize() string                        { return "" }
func (alike) Deserialize(arrow.DataType, string) (arrow.ExtensionType, error) {
	return nil, arrow.ErrInvalid
}

type alikeArray struct{ array.ExtensionArrayBase }

// A type whose Equal is wrong is not read as another type.
func TestTypesThatAreNotStoredAlike(t *testing.T) {
	checkLeaks(t)
	schemaOf := func(stored arrow.DataType, from string) *arrow.Schema {
		return arrow.NewSchema([]arrow.Field{{Name: "s", Type: arrow.StructOf(
			arrow.Field{Name: "n", Type: arrow.PrimitiveTypes.Int64, Metadata: noted(from)},
			arrow.Field{Name: "x", Type: &alike{arrow.ExtensionBase{Storage: stored}}},
		)}}, nil)
	}
	readers, batches := schemaOf(arrow.BinaryTypes.String, "reader"), schemaOf(arrow.PrimitiveTypes.Int64, "batch")
	number := fromJSON(t, arrow.PrimitiveTypes.Int64, `[1152921504606846976]`) // no offset of a text
	thing := array.NewExtensionArrayWithStorage(&alike{arrow.ExtensionBase{Storage: number.DataType()}}, number)
	defer thing.Release()
	data := array.NewData(batches.Field(0).Type, 1, []*memory.Buffer{nil}, []arrow.ArrayData{number.Data(), thing.Data()}, 0, 0)
	defer data.Release()
	column := array.MakeFromData(data)
	defer column.Release()
	rec := array.NewRecordBatch(batches, []arrow.Array{column}, 1)
	defer rec.Release()
	r, err := cdevice.WrapRecordReader(told{rec: rec, schema: readers}, device.CPUDevice())
	require.NoError(t, err)
	defer r.Release()
	require.True(t, r.Next(), "%v", r.Err())
	view, err := r.RecordBatch().HostView(background)
	require.NoError(t, err)
	defer view.Release()
	read := view.Column(0).(*array.Struct)
	sameFields(t, "n", readers.Field(0).Type.(*arrow.StructType).Field(0), read.DataType().(*arrow.StructType).Field(0))
	assert.Equal(t, arrow.INT64, read.Field(1).(array.ExtensionArray).Storage().DataType().ID())
	copied, err := r.RecordBatch().CopyTo(background, device.CPUDevice())
	require.NoError(t, err)
	copied.Release()
}
