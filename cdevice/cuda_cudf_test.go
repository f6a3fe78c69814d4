package cdevice_test

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/trees"
)

// Columns that need nothing are given as they are, and not read: the driver is not called.
func TestForCuDFCopiesOnlyWhatMustChange(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	// No column of these may have nulls, but those that are null.
	columns := []arrow.Array{
		fromJSON(t, arrow.ListOf(arrow.Null), `[[null],[]]`), fromJSON(t, arrow.Null, `[null,null]`),
		fromJSON(t, arrow.BinaryTypes.String, `["a","b"]`), fromJSON(t, arrow.ListOf(arrow.PrimitiveTypes.Int8), `[[1],[]]`),
		fromJSON(t, arrow.PrimitiveTypes.Int64, `[null,1]`), fromJSON(t, arrow.StructOf(nullable("f", arrow.PrimitiveTypes.Int64)), `[{"f":1},{"f":2}]`),
	}
	fields := make([]arrow.Field, len(columns))
	for i := range fields {
		fields[i] = arrow.Field{Name: fmt.Sprint(i), Type: columns[i].DataType(), Nullable: true}
	}
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 2)
	there, err := cdevice.CopyToDevice(background, rec, m.GPUs[0])
	require.NoError(t, err)
	require.NoError(t, there.Synchronize(background))
	require.NoError(t, m.GPUs[0].Flush(background)) // no deferred free calls the driver below
	made, _ := calls(m, func() {
		fitted, err := there.ForCuDF(background)
		require.NoError(t, err)
		assert.Same(t, there.Schema(), fitted.Schema())
		fitted.Release()
	})
	assert.Empty(t, made)
	there.Release()
}

// A column that must go through the CPU is one of several, which stay on the device.
func TestForCuDFSanitizesOneColumnOfMany(t *testing.T) {
	checkLeaks(t)
	want := fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,null,3,4]`)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		for _, pinned := range []bool{false, true} {
			text := trees.NullAt(fromJSON(t, arrow.BinaryTypes.String, `["a","bb","ccc","dddd"]`), 1)
			fixed := fromJSON(t, arrow.FixedSizeListOf(1, arrow.PrimitiveTypes.Int8), `[[1],[2],[3],[4]]`)
			schema := arrow.NewSchema([]arrow.Field{
				{Name: "n", Type: want.DataType(), Nullable: true},
				{Name: "t", Type: text.DataType(), Nullable: true}, {Name: "f", Type: fixed.DataType()},
				{Name: "m", Type: want.DataType(), Nullable: true},
			}, nil)
			rec := array.NewRecordBatch(schema, []arrow.Array{want, text, fixed, want}, 4)
			dev := gpu
			if pinned {
				dev = gpu.Pinned()
			}
			there, err := cdevice.CopyToDevice(background, rec, dev)
			require.NoError(t, err)
			fitted, err := there.ForCuDF(background)
			require.NoError(t, err)
			there.Release()
			assert.Equal(t, arrow.LIST, fitted.Schema().Field(2).Type.ID())
			assert.Equal(t, dev.ID(), fitted.DeviceID())
			b := sent(t, fitted, dev)
			back, err := b.FromCuDF(background, schema)
			require.NoError(t, err)
			b.Release()
			sameBatchOnHost(t, rec, back)
			back.Release()
			require.NoError(t, gpu.Flush(background))
		}
	})
}

// The columns of a batch have the types of the schema that FromCuDF is given, or an error names the column.
func TestFromCuDFOfABatch(t *testing.T) {
	checkLeaks(t)
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	rec := oneColumn(t, fromJSON(t, arrow.ListOf(arrow.PrimitiveTypes.Int16), `[[1,2],[3,4]]`))
	b := kept(cdevice.CopyToDevice(background, rec, gpu))(t)
	_, err := b.FromCuDF(background, arrow.NewSchema(nil, nil))
	assert.ErrorIs(t, err, arrow.ErrType)
	assert.ErrorContains(t, err, "cdevice: from cuDF: columns = 1, want 0")
	_, err = b.FromCuDF(background, arrow.NewSchema([]arrow.Field{nullable("x", arrow.FixedSizeListOf(3, arrow.Null))}, nil))
	assert.ErrorContains(t, err, "cdevice: from cuDF: column[0].children[0].type = int16, want null")
	schema := arrow.NewSchema([]arrow.Field{nullable("x", arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int16))}, nil)
	back, err := b.FromCuDF(background, schema)
	require.NoError(t, err)
	assert.Same(t, schema, back.Schema())
	back.Release()
}

func nullable(name string, dt arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: dt, Nullable: true}
}
