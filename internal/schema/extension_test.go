package schema

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
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
			if !errors.Is(err, arrow.ErrInvalid) {
				t.Fatalf("error = %v, want one that is arrow.ErrInvalid", err)
			}
			text := fmt.Sprintf(`cdevice: import: ArrowSchema.children[0].metadata["ARROW:extension:name"] = %q: invalid: extension type: %s`, name, want)
			if err.Error() != text {
				t.Errorf("got  %v\nwant %v", err, text)
			}
		})
	}
}

func TestDeserializeMayRenameFields(t *testing.T) {
	noLeak(t)
	ext := extension("test.renames", "", arrow.StructOf(arrow.Field{Name: "x", Type: arrow.PrimitiveTypes.Int8, Nullable: true}))
	f, err := Import(mustExport(t, arrow.Field{Type: ext}))
	if err != nil {
		t.Fatal(err)
	}
	if s := f.Type.String(); !strings.Contains(s, "canonical") {
		t.Errorf("type %v", s)
	}
}

func TestUnregisteredExtensionKeepsStorageAndKeys(t *testing.T) {
	noLeak(t)
	ext := extension("test.unregistered", "{}", arrow.ListOf(arrow.PrimitiveTypes.Int8))
	f, err := Import(mustExport(t, arrow.Field{Name: "x", Type: ext, Metadata: metadata("a", "b")}))
	if err != nil {
		t.Fatal(err)
	}
	want := arrow.Field{Name: "x", Type: ext.Storage, Metadata: metadata(
		"a", "b", "ARROW:extension:name", "test.unregistered", "ARROW:extension:metadata", "{}")}
	if err := sameField(want, f); err != nil {
		t.Error(err)
	}
	// What came as an unknown extension leaves as the same one.
	again, err := Import(mustExport(t, f))
	if err != nil {
		t.Fatal(err)
	}
	if err := sameField(want, again); err != nil {
		t.Error(err)
	}
}

func TestExtensionKeysOfTheTypeReplaceThoseOfTheField(t *testing.T) {
	noLeak(t)
	ext := extension("test.any", "new", arrow.PrimitiveTypes.Int8)
	stale := metadata("ARROW:extension:metadata", "old", "a", "1", "ARROW:extension:name", "other", "a", "2")
	s := mustExport(t, arrow.Field{Name: "x", Type: ext, Metadata: stale})
	if got, want := render(s), "x:c [a=1 a=2 ARROW:extension:name=test.any ARROW:extension:metadata=new]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	f, err := Import(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := sameField(arrow.Field{Name: "x", Type: ext, Metadata: metadata("a", "1", "a", "2")}, f); err != nil {
		t.Error(err)
	}
}

func TestExtensionWithoutMetadataKey(t *testing.T) {
	noLeak(t)
	f, err := Import(mustExport(t, arrow.Field{
		Type: arrow.PrimitiveTypes.Int8, Metadata: metadata("ARROW:extension:name", "test.any"),
	}))
	if err != nil {
		t.Fatal(err)
	}
	want := arrow.Field{Type: extension("test.any", "", arrow.PrimitiveTypes.Int8)}
	if err := sameField(want, f); err != nil {
		t.Error(err)
	}
}
