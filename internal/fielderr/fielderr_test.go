package fielderr_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

func TestErrorText(t *testing.T) {
	for _, c := range []struct {
		name string
		err  fielderr.Error
		want string
	}{
		{"got and want", fielderr.Error{
			Op: fielderr.OpImport, Field: "ArrowSchema.children[2].format",
			Got: "w3", Want: "w:<bytes>", Err: arrow.ErrInvalid,
		}, `cdevice: import: ArrowSchema.children[2].format = "w3", want "w:<bytes>": invalid`},
		{"numbers are not quoted", fielderr.Error{
			Op: fielderr.OpImport, Field: "ArrowDeviceArray.array.n_buffers",
			Got: 1, Want: int64(2), Err: arrow.ErrInvalid,
		}, `cdevice: import: ArrowDeviceArray.array.n_buffers = 1, want 2: invalid`},
		{"without got", fielderr.Error{
			Op: fielderr.OpExport, Field: "ArrowSchema.name", Want: "UTF-8", Err: arrow.ErrInvalid,
		}, `cdevice: export: ArrowSchema.name, want "UTF-8": invalid`},
		{"text is not quoted", fielderr.Error{
			Op: fielderr.OpImport, Field: "ArrowSchema.children",
			Got: fielderr.NULL, Want: fielderr.Text("2 pointers"), Err: arrow.ErrInvalid,
		}, `cdevice: import: ArrowSchema.children = NULL, want 2 pointers: invalid`},
		{"a released struct", fielderr.Error{
			Op: fielderr.OpImport, Field: "ArrowSchema.release", Got: fielderr.NULL, Err: fielderr.ErrReleased,
		}, `cdevice: import: ArrowSchema.release = NULL: invalid: already released`},
		{"without want", fielderr.Error{
			Op: fielderr.OpImport, Field: "ArrowSchema.format", Got: "", Err: arrow.ErrNotImplemented,
		}, `cdevice: import: ArrowSchema.format = "": not implemented`},
		{"only a field", fielderr.Error{Op: fielderr.OpImport, Field: "ArrowSchema.release"},
			`cdevice: import: ArrowSchema.release`},
	} {
		t.Run(c.name, func(t *testing.T) {
			assert.EqualError(t, &c.err, c.want)
		})
	}
}

// No part of an error is printed at any length, and a type not even made.
func TestErrorTextIsBounded(t *testing.T) {
	long := strings.Repeat("ä", 1e6)
	fields := make([]arrow.Field, 100_000)
	for i := range fields {
		fields[i] = arrow.Field{Name: fmt.Sprint("column ", i), Type: arrow.Null}
	}
	wide := arrow.StructOf(fields...)
	doubled := arrow.DataType(arrow.PrimitiveTypes.Int8)
	for range 60 {
		doubled = arrow.StructOf(arrow.Field{Name: "a", Type: doubled}, arrow.Field{Name: "b", Type: doubled})
	}
	named := arrow.ListOfField(arrow.Field{Name: long, Type: arrow.Null})
	noted := arrow.Field{Name: "x", Type: arrow.Null, Metadata: arrow.MetadataFrom(map[string]string{"k": long})}
	for _, c := range []struct {
		name string
		err  fielderr.Error
		want string
	}{
		{"got", fielderr.Error{Field: "x", Got: long}, `x = "` + long[:100] + `"... (2000000 bytes)`},
		{"want", fielderr.Error{Field: "x", Want: fielderr.Text(long)}, "x, want " + long[:1000] + "... (2000000 bytes)"},
		{"field", fielderr.Error{Field: long}, long[:4000] + "... (2000000 bytes)"},
		{"err", fielderr.Error{Field: "x", Err: errors.New(long)}, "x: " + long[:1000] + "... (2000000 bytes)"},
		{"a long list", fielderr.Error{Field: "x", Got: make([]int, 1e5)}, ""},
		{"a wide struct", fielderr.Error{Field: "x", Got: wide, Want: arrow.ListOf(wide)}, "x = struct<100000 fields>, want list<...>"},
		{"a deep struct", fielderr.Error{Field: "x", Got: doubled}, "x = struct<2 fields>"},
		{"a union", fielderr.Error{Field: "x", Got: arrow.SparseUnionOf([]arrow.Field{{Name: long, Type: arrow.Null}}, []int8{5})}, "x = sparse_union<1 field>"},
		{"a long name", fielderr.Error{Field: "x", Got: named}, "x = list<...>"},
		{"metadata", fielderr.Error{Field: "x", Got: arrow.ListOfField(noted)}, "x = list<...>"},
		{"a zone", fielderr.Error{Field: "x", Got: &arrow.TimestampType{TimeZone: long}}, "x = timestamp<...>"},
		{"a dictionary", fielderr.Error{Field: "x", Got: &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: named}}, "x = dictionary<...>"},
		{"run ends", fielderr.Error{Field: "x", Got: arrow.RunEndEncodedOf(arrow.PrimitiveTypes.Int16, named)}, "x = run_end_encoded<...>"},
		{"no type below", fielderr.Error{Field: "x", Got: &arrow.MapType{}}, "x = *arrow.MapType"},
		{"a schema", fielderr.Error{Field: "x", Got: arrow.NewSchema(fields, nil)}, "x = a schema of 100000 fields"},
		{"a schema's metadata", fielderr.Error{Field: "x", Got: arrow.NewSchema(nil, &noted.Metadata)}, "x = a schema of 0 fields"},
		{"a schema with a long name", fielderr.Error{Field: "x", Got: arrow.NewSchema([]arrow.Field{named.ElemField()}, nil)}, "x = a schema of 1 field"},
		{"a small schema", fielderr.Error{Field: "x", Got: arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.Null}}, nil)}, "x = schema:\n  fields: 1\n    - a: type=null"},
		{"a small type", fielderr.Error{Field: "x", Got: arrow.ListOf(arrow.PrimitiveTypes.Int8)}, "x = list<item: int8, nullable>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.err.Op = fielderr.OpImport
			got := c.err.Error()
			assert.LessOrEqual(t, len(got), 5000)
			if c.want != "" {
				assert.Equal(t, "cdevice: import: "+c.want, got)
				assert.LessOrEqual(t, testing.AllocsPerRun(1, func() { _ = c.err.Error() }), 200.0)
			}
		})
	}
}

// The operation of an error is that of the function that the program called, also where another part made the error.
func TestOperationsAreNamed(t *testing.T) {
	for op, want := range map[string]string{
		fielderr.OpWaitOn: "wait on", fielderr.OpUsedOn: "used on", fielderr.OpRecord: "record event", fielderr.OpValidate: "validate",
	} {
		made := fielderr.Invalid(fielderr.OpRead, "stream", "nil", "a stream")
		assert.EqualError(t, fielderr.During(op, made), "cdevice: "+want+": stream = nil, want a stream: invalid")
	}
	assert.NoError(t, fielderr.During(fielderr.OpWaitOn, nil))
}

// public is a type with the same fields, as cdevice.FieldError is.
type public struct {
	Op    string
	Field string
	Got   any
	Want  any
	Err   error
}

func (p *public) Error() string { return (*fielderr.Error)(p).Error() }

// other has fields of its own.
type other struct{ Op, Field string }

func (*other) Error() string { return "" }

func TestErrorIsFoundAsThePublicType(t *testing.T) {
	inner := &fielderr.Error{Op: fielderr.OpImport, Field: "ArrowSchema.format", Got: "w3", Err: arrow.ErrInvalid}
	err := fmt.Errorf("around: %w", errors.Join(errors.New("beside"), inner))
	var found *public
	require.ErrorAs(t, err, &found)
	assert.ErrorIs(t, err, arrow.ErrInvalid)
	assert.NotErrorIs(t, err, arrow.ErrNotImplemented)
	assert.Equal(t, public{Op: fielderr.OpImport, Field: "ArrowSchema.format", Got: "w3", Err: arrow.ErrInvalid}, *found)
	assert.Equal(t, inner.Error(), found.Error())
	found.Field = "ArrowSchema.children[1].format"
	assert.Equal(t, found.Field, inner.Field, "it is the same error: the path grows on its way up")

	var unlike *other
	assert.False(t, errors.As(err, &unlike))
	var byValue interface{ Timeout() bool }
	assert.False(t, errors.As(err, &byValue))
}
