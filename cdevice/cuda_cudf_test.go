package cdevice_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/trees"
)

// The CPU reads the bitmaps of pinned memory itself: after the work that fills them.
func TestGPUForCuDFReadsPinnedMemoryAfterItsEvent(t *testing.T) {
	checkLeaks(t)
	dt := arrow.StructOf(nullable("n", arrow.PrimitiveTypes.Int64))
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		pinned := m.GPUs[0].Pinned()
		mem, err := pinned.Allocate(background, 128, nil)
		require.NoError(t, err)
		s := newStream(t, pinned)
		require.NoError(t, pinned.Memset(mem.Ptr(), 0xFF, mem.Size(), s))
		require.NoError(t, s.Synchronize(background))
		let := m.Hold(t, s)
		require.NoError(t, pinned.Memset(mem.Ptr(), 0b101, 1, s)) // until then, no row is null
		ready, err := pinned.NewEvent()
		require.NoError(t, err)
		require.NoError(t, s.Record(ready))
		a, err := cdevice.NewArray(pinned, dt, cdevice.ArrayData{
			Length: 3, NullCount: 1, Buffers: []device.Ptr{mem.Ptr()},
			Children: []cdevice.ArrayData{{Length: 3, Buffers: []device.Ptr{0, mem.Ptr() + 64}}},
		}, cdevice.Lifetime{Ready: ready, Release: func() { assert.NoError(t, mem.FreeAfter(nil)) }})
		require.NoError(t, err)
		defer a.Release()

		ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
		defer cancel()
		early, err := a.ForCuDF(ctx)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		if early != nil {
			early.Release()
		}
		let()
		sanitized, err := a.ForCuDF(background)
		require.NoError(t, err)
		defer sanitized.Release()
		got, err := sanitized.CopyToHost(background, nil)
		require.NoError(t, err)
		defer got.Release()
		assert.Equal(t, 1, got.NullN())
		assert.True(t, got.(*array.Struct).Field(0).IsNull(1), "a field of a null struct")
	})
}

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

// tripToCuDF sends a batch to the GPU, as libcudf wants it, through C, and back.
func tripToCuDF(rec arrow.RecordBatch, gpu device.Device) error {
	there, err := cdevice.CopyToDevice(background, rec, gpu)
	if err != nil {
		return err
	}
	out, schema := garbageArray(), garbageSchema()
	err = exportMade(out, schema)(there.ForCuDF(background))
	there.Release()
	if err != nil {
		return err
	}
	imported, err := cdevice.ImportRecordBatch(out, schema, cdevice.WithDevice(gpu))
	if err != nil {
		return err
	}
	defer imported.Release()
	back, err := imported.FromCuDF(background, rec.Schema())
	if err != nil {
		return err
	}
	defer back.Release()
	host, err := back.CopyToHost(background, nil)
	if err != nil {
		return err
	}
	defer host.Release()
	if !array.RecordEqual(rec, host) {
		return errors.New("the data is not the same")
	}
	return nil
}

// Each call of the driver in a trip on which columns are rebuilt both ways is made to fail.
func TestEachCallOfATripToCuDFFails(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	columns := []arrow.Array{
		trees.NullAt(fromJSON(t, arrow.BinaryTypes.String, `["a","bb","ccc"]`), 1), fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,null,3]`),
		fromJSON(t, arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Int8), `[[1,2],null,[3,null]]`),
	}
	fields := make([]arrow.Field, len(columns))
	for i := range fields {
		fields[i] = arrow.Field{Name: fmt.Sprint(i), Type: columns[i].DataType(), Nullable: true}
	}
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 3)
	for m.Sim.Report().Live.Events > 0 { // cached events
		require.NoError(t, m.GPUs[0].Trim(background))
	}
	require.Greater(t, eachCallFails(t, m, func() error { return tripToCuDF(rec, m.GPUs[0]) }), 50)
}

// The columns of a batch have the types of the schema that FromCuDF is given, or an error names the column.
func TestFromCuDFOfABatch(t *testing.T) {
	checkLeaks(t)
	gpu := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	rec := oneColumn(t, fromJSON(t, arrow.ListOf(arrow.PrimitiveTypes.Int16), `[[1,2],[3,4]]`))
	b, err := cdevice.CopyToDevice(background, rec, gpu)
	require.NoError(t, err)
	defer b.Release()
	_, err = b.FromCuDF(background, arrow.NewSchema(nil, nil))
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
