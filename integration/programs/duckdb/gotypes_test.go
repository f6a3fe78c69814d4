//go:build duckdb_arrow

package duckdb

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

var (
	// refused are types that DuckDB does not take.
	refused = map[string]bool{"float16": true, "decimal256": true, "struct_empty": true, "dense_union": true, "sparse_union": true}
	// changed are those that come back with other values: DuckDB has no nanoseconds in intervals, and does not use the
	// offset of a struct within a struct.
	changed = regexp.MustCompile(`^(interval_month_day_nano/(nulls|valid|sliced)|struct_nested/sliced)$`)
)

// Arrays of every type in memory of the Go heap, into DuckDB and back.
func TestAllTypesOfArrowThereAndBack(t *testing.T) {
	duck := open(t).connect(t)
	duck.exec(t, "SET arrow_lossless_conversion = true")
	mem := memory.NewGoAllocator()
	for _, c := range cases.All() {
		for _, variant := range cases.Variants {
			t.Run(c.Name+"/"+string(variant), func(t *testing.T) {
				sent, err := c.Array(mem, variant)
				require.NoError(t, err)
				defer sent.Release()
				back, err := thereAndBack(t, duck, sent)
				if refused[c.Name] {
					assert.True(t, err != nil || sent.Len() == 0, "is taken")
					return
				}
				require.NoError(t, err)
				defer back.Release()
				require.Equal(t, sent.Len(), back.Len())
				if arrow.TypeEqual(sent.DataType(), back.DataType()) {
					name := c.Name + "/" + string(variant)
					assert.Equal(t, !changed.MatchString(name), array.Equal(sent, back), "%v from %v", back, sent)
				}
				for i := range sent.Len() {
					assert.Equal(t, isNull(sent, i), isNull(back, i), "null %d", i)
				}
			})
		}
	}
}

// isNull is IsNull, but for the arrays that have no bitmap.
func isNull(a arrow.Array, i int) bool {
	switch a := a.(type) {
	case *array.Null:
		return true
	case *array.RunEndEncoded:
		return a.Values().IsNull(a.GetPhysicalIndex(i))
	}
	return a.IsNull(i)
}

func thereAndBack(t *testing.T, duck connection, sent arrow.Array) (back arrow.Array, err error) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "v", Type: sent.DataType(), Nullable: true}}, nil)
	batch := array.NewRecordBatch(schema, []arrow.Array{sent}, int64(sent.Len()))
	defer batch.Release()
	r, err := array.NewRecordReader(schema, []arrow.RecordBatch{batch})
	require.NoError(t, err)
	defer r.Release()
	release, err := duck.arrow.RegisterView(r, "v")
	if err != nil {
		return nil, err
	}
	defer release()
	rows, err := duck.arrow.QueryContext(t.Context(), "SELECT * FROM v")
	if err != nil {
		return nil, err
	}
	defer rows.Release()
	if !rows.Next() {
		empty := array.NewBuilder(memory.DefaultAllocator, rows.Schema().Field(0).Type)
		defer empty.Release()
		return empty.NewArray(), rows.Err()
	}
	back = rows.RecordBatch().Column(0)
	back.Retain()
	return back, nil
}
