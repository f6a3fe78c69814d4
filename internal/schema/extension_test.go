package schema

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// testType is an extension type over any storage, which Deserialize rebuilds as
// rebuild says.
type testType struct {
	arrow.ExtensionBase
	name, data string
	rebuild    func(storage arrow.DataType, data string) (arrow.ExtensionType, error)
}

type testArray struct{ array.ExtensionArrayBase }

func (*testType) ArrayType() reflect.Type { return reflect.TypeFor[testArray]() }
func (t *testType) ExtensionName() string { return t.name }
func (t *testType) Serialize() string     { return t.data }
func (t *testType) String() string        { return fmt.Sprintf("%s(%s)<%v>", t.name, t.data, t.Storage) }

func (t *testType) ExtensionEquals(other arrow.ExtensionType) bool {
	o, ok := other.(*testType)
	return ok && t.name == o.name && t.data == o.data && arrow.TypeEqual(t.Storage, o.Storage, arrow.CheckMetadata())
}

func (t *testType) Deserialize(storage arrow.DataType, data string) (arrow.ExtensionType, error) {
	return t.rebuild(storage, data)
}

func extension(name, data string, storage arrow.DataType) *testType {
	return &testType{ExtensionBase: arrow.ExtensionBase{Storage: storage}, name: name, data: data}
}

// registered are the types that the registry holds during the tests.
var registered = []*testType{
	{name: "test.any", rebuild: func(storage arrow.DataType, data string) (arrow.ExtensionType, error) {
		return extension("test.any", data, storage), nil
	}},
	{name: "test.fails", rebuild: func(arrow.DataType, string) (arrow.ExtensionType, error) {
		return nil, errors.New("no such mood")
	}},
	{name: "test.panics", rebuild: func(arrow.DataType, string) (arrow.ExtensionType, error) {
		panic("out of cheese")
	}},
	{name: "test.nothing", rebuild: func(arrow.DataType, string) (arrow.ExtensionType, error) {
		return nil, nil
	}},
	{name: "test.typednil", rebuild: func(arrow.DataType, string) (arrow.ExtensionType, error) {
		return (*testType)(nil), nil
	}},
	{name: "test.nostorage", rebuild: func(arrow.DataType, string) (arrow.ExtensionType, error) {
		return extension("test.nostorage", "", nil), nil
	}},
	{name: "test.int64", rebuild: func(arrow.DataType, string) (arrow.ExtensionType, error) {
		return extension("test.int64", "", arrow.PrimitiveTypes.Int64), nil
	}},
	// Names and nullability are no matter of layout.
	{name: "test.renames", rebuild: func(arrow.DataType, string) (arrow.ExtensionType, error) {
		return extension("test.renames", "", arrow.StructOf(arrow.Field{Name: "canonical", Type: arrow.PrimitiveTypes.Int8})), nil
	}},
}

func TestDeserializeThatFailsIsAnErrorThatNamesTheType(t *testing.T) {
	for name, want := range map[string]string{
		"test.fails":     "no such mood",
		"test.panics":    "panic in Deserialize: out of cheese",
		"test.nothing":   "no type from Deserialize",
		"test.typednil":  "no type from Deserialize",
		"test.nostorage": "storage <nil> from Deserialize for int32",
		"test.int64":     "storage int64 from Deserialize for int32",
	} {
		t.Run(name, func(t *testing.T) {
			noLeak(t)
			ext := extension(name, "", arrow.PrimitiveTypes.Int32)
			_, err := Import(mustExport(t, arrow.Field{Name: "x", Type: arrow.ListOf(ext)}))
			assert.ErrorIs(t, err, arrow.ErrInvalid)
			assert.EqualError(t, err, fmt.Sprintf(
				`cdevice: import: ArrowSchema.children[0].metadata["ARROW:extension:name"] = %q: invalid: extension type: %s`, name, want))
		})
	}
}

func TestDeserializeMayRenameFields(t *testing.T) {
	noLeak(t)
	ext := extension("test.renames", "", arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int8, Nullable: true}))
	f, err := Import(mustExport(t, arrow.Field{Type: ext}))
	require.NoError(t, err)
	assert.Contains(t, f.Type.String(), "canonical")
}

func TestUnregisteredExtensionKeepsStorageAndKeys(t *testing.T) {
	noLeak(t)
	ext := extension("test.unregistered", "{}", arrow.ListOf(arrow.PrimitiveTypes.Int8))
	f, err := Import(mustExport(t, arrow.Field{Name: "x", Type: ext, Metadata: metadata("a", "b")}))
	require.NoError(t, err)
	want := arrow.Field{Name: "x", Type: ext.Storage, Metadata: metadata(
		"a", "b", "ARROW:extension:name", "test.unregistered", "ARROW:extension:metadata", "{}")}
	assert.NoError(t, sameField(want, f))
	// What came as an unknown extension leaves as the same one.
	again, err := Import(mustExport(t, f))
	require.NoError(t, err)
	assert.NoError(t, sameField(want, again))
}

func TestExtensionKeysOfTheTypeReplaceThoseOfTheField(t *testing.T) {
	noLeak(t)
	ext := extension("test.any", "new", arrow.PrimitiveTypes.Int8)
	stale := metadata("ARROW:extension:metadata", "old", "a", "1", "ARROW:extension:name", "other", "a", "2")
	s := mustExport(t, arrow.Field{Name: "x", Type: ext, Metadata: stale})
	assert.Equal(t, "x:c [a=1 a=2 ARROW:extension:name=test.any ARROW:extension:metadata=new]", render(s))
	f, err := Import(s)
	require.NoError(t, err)
	assert.NoError(t, sameField(arrow.Field{Name: "x", Type: ext, Metadata: metadata("a", "1", "a", "2")}, f))
}

func TestExtensionWithoutMetadataKey(t *testing.T) {
	noLeak(t)
	f, err := Import(mustExport(t, arrow.Field{
		Type: arrow.PrimitiveTypes.Int8, Metadata: metadata("ARROW:extension:name", "test.any"),
	}))
	require.NoError(t, err)
	want := arrow.Field{Type: extension("test.any", "", arrow.PrimitiveTypes.Int8)}
	assert.NoError(t, sameField(want, f))
}
