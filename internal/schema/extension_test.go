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

// What a field with an extension type, or with its keys, is after an export and an import, and after another one.
func TestFieldsWithExtensionsSurviveTheRoundTrip(t *testing.T) {
	int8s := arrow.PrimitiveTypes.Int8
	renamed := arrow.StructOf(arrow.Field{Name: "x", Type: int8s, Nullable: true})
	canonical := arrow.StructOf(arrow.Field{Name: "canonical", Type: int8s})
	unknown := extension("test.unregistered", "{}", arrow.ListOf(int8s))
	known := extension("test.any", "new", int8s)
	for name, row := range map[string]struct{ field, want arrow.Field }{
		"other names below": {
			arrow.Field{Type: extension("test.renames", "", renamed)},
			arrow.Field{Type: extension("test.renames", "", canonical)},
		},
		"unregistered": {
			arrow.Field{Type: unknown, Metadata: metadata("a", "b")},
			arrow.Field{Type: unknown.Storage, Metadata: metadata("a", "b", extensionName, "test.unregistered", extensionMetadata, "{}")},
		},
		"keys of another type": {
			arrow.Field{Type: known, Metadata: metadata(extensionMetadata, "old", "a", "1", extensionName, "other", "a", "2")},
			arrow.Field{Type: known, Metadata: metadata("a", "1", "a", "2")},
		},
		"no key for metadata": {
			arrow.Field{Type: int8s, Metadata: metadata(extensionName, "test.any")},
			arrow.Field{Type: extension("test.any", "", int8s)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			noLeak(t)
			for _, f := range []arrow.Field{row.field, row.want} {
				got, err := Import(mustExport(t, f))
				require.NoError(t, err)
				assert.NoError(t, sameField(row.want, got))
			}
		})
	}
}
