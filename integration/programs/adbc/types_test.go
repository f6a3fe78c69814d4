package adbc

import (
	"regexp"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// The types that SQLite's driver binds, and those of them whose values have another text in SQLite.
var (
	bound = regexp.MustCompile(`^(null|bool|u?int\d+|float\d+|date32|timestamp_.*|extension_.*|` +
		`(large_|fixed_size_)?(binary|utf8)(_view)?|dictionary_u?int\d+)$`)
	other = regexp.MustCompile(`^(bool|date32|timestamp_.*|extension_.*)$`)
)

// Arrays of every type in memory of the Go heap, bound to a parameter.
func TestAllTypesAreBound(t *testing.T) {
	c := connect(t)
	mem := memory.NewGoAllocator()
	for _, k := range cases.All() {
		for _, variant := range []cases.Variant{cases.Nulls, cases.Valid, cases.Sliced} {
			t.Run(k.Name+"/"+string(variant), func(t *testing.T) {
				sent, err := k.Array(mem, variant)
				require.NoError(t, err)
				defer sent.Release()
				schema := arrow.NewSchema([]arrow.Field{{Name: "v", Type: sent.DataType(), Nullable: true}}, nil)
				batch := array.NewRecordBatch(schema, []arrow.Array{sent}, int64(sent.Len()))
				defer batch.Release()
				s := statement(t, c, "SELECT ?")
				require.NoError(t, s.Bind(t.Context(), batch))
				r, _, err := s.ExecuteQuery(t.Context())
				if !bound.MatchString(k.Name) {
					assert.ErrorContains(t, err, "unsupported type")
					return
				}
				require.NoError(t, err)
				defer r.Release()
				require.True(t, r.Next())
				back := r.RecordBatch().Column(0)
				require.Equal(t, sent.Len(), back.Len())
				for i := range sent.Len() {
					if sent.IsNull(i) || other.MatchString(k.Name) {
						assert.Equal(t, sent.IsNull(i), back.IsNull(i))
					} else {
						assert.Equal(t, sent.ValueStr(i), back.ValueStr(i))
					}
				}
			})
		}
	}
}

// A stream without rows is one without a schema, to SQLite's driver.
func TestNoRowsAreBound(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	batch := b.NewRecordBatch()
	defer batch.Release()
	s := statement(t, connect(t), "SELECT ?")
	require.NoError(t, s.Bind(t.Context(), batch))
	_, _, err := s.ExecuteQuery(t.Context())
	assert.ErrorIs(t, err, arrow.ErrInvalid)
	assert.ErrorContains(t, err, "format = NULL")
}
