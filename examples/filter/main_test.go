package main

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A table as polars passes it.
func TestKeep(t *testing.T) {
	mem := memory.NewCheckedAllocator(memory.DefaultAllocator)
	defer mem.AssertSize(t, 0)
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "city", Type: arrow.BinaryTypes.StringView},
		{Name: "km", Type: arrow.PrimitiveTypes.Float64},
		{Name: "code", Type: arrow.BinaryTypes.BinaryView},
	}, nil)
	b := array.NewRecordBuilder(mem, schema)
	defer b.Release()
	b.Field(0).(*array.StringViewBuilder).AppendValues([]string{"Oslo", "Lima", "a name of more than twelve bytes"}, nil)
	b.Field(1).(*array.Float64Builder).AppendValues([]float64{12.5, 1, 3}, nil)
	b.Field(2).(*array.BinaryViewBuilder).AppendValues([][]byte{[]byte("O"), []byte("L"), nil}, []bool{true, true, false})
	table := b.NewRecordBatch()
	defer table.Release()
	rows := array.NewBooleanBuilder(mem)
	defer rows.Release()
	rows.AppendValues([]bool{true, false, true}, nil)
	mask := rows.NewBooleanArray()
	defer mask.Release()

	kept, err := keep(t.Context(), table, mask)
	require.NoError(t, err)
	defer kept.Release()
	assert.Equal(t, `["Oslo" "a name of more than twelve bytes"]`, kept.Column(0).String())
	assert.Equal(t, "[12.5 3]", kept.Column(1).String())
	assert.Equal(t, []byte("O"), kept.Column(2).(*array.Binary).Value(0))
	assert.True(t, kept.Column(2).IsNull(1))
	assert.Equal(t, arrow.STRING_VIEW, table.Column(0).DataType().ID(), "the table is as it was")
}
