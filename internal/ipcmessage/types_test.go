package ipcmessage

import (
	"bytes"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// arrives reports whether arrow-go writes and reads a schema as it is.
func arrives(s *arrow.Schema) bool {
	var b bytes.Buffer
	failed := func() (failed bool) {
		defer func() { failed = failed || recover() != nil }()
		return ipc.NewWriter(&b, ipc.WithSchema(s)).Close() != nil
	}()
	if failed {
		return false
	}
	r, err := ipc.NewReader(&b)
	if err != nil {
		return false
	}
	defer r.Release()
	return r.Schema().Equal(s)
}

// The types that are refused are those that arrive as others, end the stream, or let arrow-go's writer panic.
func TestTypesThatASchemaDescribes(t *testing.T) {
	text, uuid := arrow.BinaryTypes.String, extensions.NewUUIDType()
	var (
		encoded = func(values arrow.DataType) arrow.DataType {
			return &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: values}
		}
		opaque = func(storage arrow.DataType) arrow.DataType {
			return extensions.NewOpaqueType(storage, "type", "vendor")
		}
		in = func(dt arrow.DataType) arrow.DataType {
			return arrow.StructOf(arrow.Field{Name: "n", Type: arrow.Null, Nullable: true}, arrow.Field{Name: "f", Type: dt, Nullable: true})
		}
	)
	const (
		ofExtensions = `values of the extension type "arrow.uuid" in a dictionary, which an IPC schema cannot describe: decode it, or use the storage`
		ofOpaque     = `values of the extension type "arrow.opaque" in a dictionary, which an IPC schema cannot describe: decode it, or use the storage`
		twice        = `values of a dictionary in a dictionary, which an IPC schema cannot describe: decode one`
		extended     = `the extension type "arrow.opaque" over the extension type "arrow.uuid", which an IPC schema cannot describe: use the storage`
		overEncoded  = `the extension type "arrow.opaque" over a dictionary, which arrow-go's IPC writer does not write: use the storage`
	)
	type want struct{ at, text string }
	rows := map[arrow.DataType]want{
		encoded(uuid):                           {"", ofExtensions},
		encoded(opaque(arrow.ListOf(text))):     {"", ofOpaque},
		encoded(opaque(encoded(text))):          {"", ofOpaque},
		encoded(encoded(text)):                  {"", twice},
		opaque(uuid):                            {"", extended},
		opaque(encoded(text)):                   {"", overEncoded},
		in(encoded(uuid)):                       {".children[1]", ofExtensions},
		in(in(encoded(encoded(text)))):          {".children[1].children[1]", twice},
		arrow.ListOf(encoded(uuid)):             {".children[0]", ofExtensions},
		arrow.ListViewOf(opaque(uuid)):          {".children[0]", extended},
		arrow.FixedSizeListOf(2, encoded(uuid)): {".children[0]", ofExtensions},
		arrow.MapOf(text, encoded(uuid)):        {".children[0].children[1]", ofExtensions},
		opaque(in(encoded(uuid))):               {".children[1]", ofExtensions},
		encoded(in(encoded(uuid))):              {".dictionary.children[1]", ofExtensions},
		encoded(arrow.ListOf(in(opaque(uuid)))): {".dictionary.children[0].children[1]", extended},
		arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, encoded(uuid)):                                           {".children[1]", ofExtensions},
		arrow.DenseUnionOf([]arrow.Field{{Name: "a", Type: text}, {Name: "b", Type: encoded(uuid)}}, []int8{3, 4}): {".children[1]", ofExtensions},

		uuid: {}, in(uuid): {}, encoded(text): {}, encoded(in(uuid)): {}, encoded(arrow.ListOf(uuid)): {}, encoded(in(encoded(text))): {},
		opaque(in(uuid)): {}, opaque(in(encoded(text))): {}, arrow.MapOf(text, uuid): {}, arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int32, uuid): {},
	}
	for _, c := range cases.All() {
		rows[c.Type] = want{}
	}
	for dt, want := range rows {
		s := arrow.NewSchema([]arrow.Field{{Name: "good", Type: text}, {Name: "x", Type: dt, Nullable: true}}, nil)
		err := CheckTypes(s)
		assert.Equal(t, want.text == "", arrives(s), "%s", dt)
		if want.text == "" {
			assert.Nil(t, err, "%s", dt)
			continue
		}
		require.NotNil(t, err, "%s", dt)
		assert.Equal(t, &Error{Field: `columns[1] "x"` + want.at, Text: want.text}, err)
	}
}
