package cdevice_test

import (
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Memory that the program filled itself becomes a batch, and is given back once.
func TestGPUBatchOfOwnMemory(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		s := newStream(t, gpu)
		open := m.Hold(t, s)
		numbers := filled(t, gpu, s, arrow.Int64Traits.CastToBytes([]int64{10, 20, 30, 40}))
		valid := filled(t, gpu, s, []byte{0b1011})
		offsets := filled(t, gpu, s, arrow.Int32Traits.CastToBytes([]int32{0, 1, 3, 3, 6}))
		text := filled(t, gpu, s, []byte("abbccc"))
		e, err := gpu.NewEvent()
		require.NoError(t, err)
		require.NoError(t, s.Record(e))

		schema := arrow.NewSchema([]arrow.Field{
			{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
			{Name: "l", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64), Nullable: true},
			{Name: "s", Type: arrow.BinaryTypes.String},
		}, nil)
		listOffsets := filled(t, gpu, s, arrow.Int32Traits.CastToBytes([]int32{0, 2, 2, 4, 4}))
		require.NoError(t, s.Record(e))
		released := 0
		batch, err := cdevice.NewRecordBatch(gpu, schema, 4, []cdevice.ArrayData{
			{Length: 4, NullCount: -1, Buffers: []device.Ptr{valid.Ptr(), numbers.Ptr()}},
			{Length: 4, Buffers: []device.Ptr{0, listOffsets.Ptr()}, Children: []cdevice.ArrayData{{Length: 4, Buffers: []device.Ptr{0, numbers.Ptr()}}}},
			{Length: 4, Buffers: []device.Ptr{0, offsets.Ptr(), text.Ptr()}},
		}, cdevice.Lifetime{Ready: e, Release: func() { released++ }})
		require.NoError(t, err)
		assert.False(t, ready(t, batch))
		list := batch.Column(1)
		assert.Equal(t, []device.Ptr{0, listOffsets.Ptr()}, list.Buffers())
		require.Equal(t, 1, list.NumChildren())
		values := list.Child(0)
		assert.Equal(t, []device.Ptr{0, numbers.Ptr()}, values.Buffers())
		assert.Equal(t, arrow.PrimitiveTypes.Int64, values.DataType())
		assert.Zero(t, values.Offset())
		values.Release()
		list.Release()
		assert.Panics(t, func() { list.Child(0) })

		out, outSchema := garbageArray(), garbageSchema()
		require.NoError(t, cdevice.ExportRecordBatch(batch, out, outSchema))
		back, err := cdevice.ImportRecordBatch(out, outSchema, cdevice.WithDevice(gpu))
		require.NoError(t, err)
		batch.Release()
		open()
		rec, err := back.CopyToHost(background, nil)
		require.NoError(t, err)
		assert.Equal(t, `["a" "bb" "" "ccc"]`, rec.Column(2).String())
		assert.Equal(t, `[[10 20] [] [30 40] []]`, rec.Column(1).String())
		assert.Equal(t, `[10 20 (null) 40]`, rec.Column(0).String())
		assert.EqualValues(t, 1, rec.Column(0).NullN())
		rec.Release()
		require.NoError(t, gpu.Flush(background))
		assert.Zero(t, released)
		back.Release()
		require.NoError(t, gpu.Flush(background))
		assert.Equal(t, 1, released)
		for _, m := range []device.Memory{numbers, valid, offsets, text, listOffsets} {
			require.NoError(t, m.Free(s))
		}
	})
}

// Memory that is refused is released once, after the work that may be using it, and its event is closed.
func TestOwnMemoryThatIsRefused(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	gpu := m.GPUs[0]
	at := []device.Ptr{0, 0x1000}
	i64 := arrow.PrimitiveTypes.Int64
	ints := arrow.NewSchema([]arrow.Field{{Name: "n", Type: i64}}, nil)
	text := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	one := cdevice.ArrayData{Length: 1, Buffers: at}
	array := func(dt arrow.DataType, data cdevice.ArrayData) func(cdevice.Lifetime) error {
		return func(l cdevice.Lifetime) error { return second(cdevice.NewArray(gpu, dt, data, l)) }
	}
	batch := func(s *arrow.Schema, rows int64, columns ...cdevice.ArrayData) func(cdevice.Lifetime) error {
		return func(l cdevice.Lifetime) error { return second(cdevice.NewRecordBatch(gpu, s, rows, columns, l)) }
	}
	elsewhere, err := m.GPUs[1].NewEvent()
	require.NoError(t, err)
	closed, err := gpu.NewEvent()
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	ready := func(e device.Event) func(cdevice.Lifetime) error {
		return func(l cdevice.Lifetime) error {
			if l.Ready != nil {
				require.NoError(t, l.Ready.Close())
			}
			l.Ready = e
			return array(i64, one)(l)
		}
	}
	for want, make := range map[string]func(cdevice.Lifetime) error{
		"type = nil, want a data type":                                    array(nil, one),
		"data.n_buffers = 1, want 2 for int64":                            array(i64, cdevice.ArrayData{Length: 1, Buffers: at[:1]}),
		"data.length = -1":                                                array(i64, cdevice.ArrayData{Length: -1, Buffers: at}),
		"data.n_children = 0, want 1":                                     array(arrow.ListOf(i64), one),
		"data.dictionary = NULL":                                          array(text, one),
		"schema = nil":                                                    batch(nil, 0),
		"schema has 1 field for 0 columns":                                batch(ints, 0),
		"column[0].length = 1, want at least 2":                           batch(ints, 2, one),
		"rows = -1":                                                       batch(ints, -1, one),
		"Lifetime.Ready = nil, want an event, or no value of a type":      ready((*cudaalloc.Event)(nil)),
		"Lifetime.Ready = an event of cuda:1, want an event of cuda:0":    ready(elsewhere),
		"Lifetime.Ready = an event of no device, want an event of cuda:0": ready(eventOfNoDevice{}),
		"Lifetime.Ready = a closed event, want an event of cuda:0":        ready(closed),
	} {
		t.Run(want, func(t *testing.T) {
			var released atomic.Int64
			e, err := gpu.NewEvent()
			require.NoError(t, err)
			s := newStream(t, gpu)
			open := m.Hold(t, s)
			err = make(cdevice.Lifetime{Ready: e, Release: func() { released.Add(1) }})
			assert.ErrorContains(t, err, "cdevice: new: "+want)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
			assert.Zero(t, released.Load())
			open()
			require.NoError(t, gpu.Flush(background))
			assert.EqualValues(t, 1, released.Load())
		})
	}
	released := false // without a device there is no work to wait for
	err = second(cdevice.NewArray(nil, i64, one, cdevice.Lifetime{Ready: (*cudaalloc.Event)(nil), Release: func() { released = true }}))
	assert.ErrorContains(t, err, "cdevice: new: device = nil")
	assert.True(t, released)
}

// eventOfNoDevice is an event whose device is a nil pointer.
type eventOfNoDevice struct{ device.Event }

func (eventOfNoDevice) Device() device.Device { return (*cudaalloc.Device)(nil) }
func (eventOfNoDevice) Close() error          { return nil }

// Where the host must not touch managed memory while the GPU works, it is memory of a
// device like any other: copied by the driver, and not viewed.
func TestManagedMemoryThatIsTheGPUsAlone(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{NoConcurrentManaged: true})
	gpu := m.GPUs[0]
	managed := gpu.Managed()
	rec := columnsOf(memory.DefaultAllocator, 3, 100, true)
	defer rec.Release()
	m.Hold(t, newStream(t, gpu)) // the GPU works all the time
	batch, err := cdevice.CopyToDevice(background, rec, managed)
	require.NoError(t, err)
	imported := sent(t, batch, managed)
	defer imported.Release()
	column := imported.Column(2)
	defer column.Release()
	for name, err := range map[string]error{
		"WrapRecordBatch":      second(cdevice.WrapRecordBatch(rec, managed)),
		"WrapArray":            second(cdevice.WrapArray(rec.Column(0), managed)),
		"HostView":             second(imported.HostView(background)),
		"HostView of a column": second(column.HostView(background)),
		"AsCPU":                second(imported.AsCPU(background)),
	} {
		assert.ErrorIs(t, err, device.ErrNotSupported, name)
		assert.ErrorContains(t, err, "must not touch", name)
	}
	nulls, err := column.CountNulls(background)
	require.NoError(t, err)
	assert.Zero(t, nulls)
	again := kept(imported.CopyTo(background, managed))(t)
	sameBatchOnHost(t, rec, again)
}
