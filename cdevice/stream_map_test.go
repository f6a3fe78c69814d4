package cdevice_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/errno"
)

// Map of readers, for Go and for C. internal/items tests its order, and who owns the batches.

// elsewhere is a device of another type.
type elsewhere struct{ device.Device }

func (elsewhere) ID() device.ID { return device.ID{Type: device.ExtDev} }

// A function that does not return a batch of the stream ends it; its argument and its result are each released
// once.
func TestFunctionThatFailsEndsTheStream(t *testing.T) {
	wider := arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.Null}}, nil)
	emptySchema := arrow.NewSchema(nil, nil)
	for name, row := range map[string]struct {
		f     func(b *cdevice.RecordBatch, released func()) (*cdevice.RecordBatch, error)
		makes int64 // batches of its own
		want  string
		code  syscall.Errno
	}{
		"an error beside its argument": {func(b *cdevice.RecordBatch, _ func()) (*cdevice.RecordBatch, error) {
			return b, fmt.Errorf("refused: %w", arrow.ErrInvalid)
		}, 0, "refused: invalid", syscall.EINVAL},
		"its argument after a Release": {func(b *cdevice.RecordBatch, _ func()) (*cdevice.RecordBatch, error) {
			b.Release()
			return b, nil
		}, 0, "cdevice: panic: cdevice: RecordBatch: Release without a Retain: it is borrowed from its reader, which releases it: invalid", syscall.EINVAL},
		"other types": {func(_ *cdevice.RecordBatch, released func()) (*cdevice.RecordBatch, error) {
			return cdevice.NewRecordBatch(device.CPUDevice(), wider, 0, make([]cdevice.ArrayData, 1), cdevice.Lifetime{Release: released})
		}, 1, "cdevice: read: RecordBatch has 1 column, and the schema of the stream 0 fields: invalid", syscall.EINVAL},
		"another device": {func(_ *cdevice.RecordBatch, released func()) (*cdevice.RecordBatch, error) {
			return cdevice.NewRecordBatch(elsewhere{device.CPUDevice()}, emptySchema, 0, nil, cdevice.Lifetime{Release: released})
		}, 1, "cdevice: read: device_type = ext_dev, want cpu, the device type of the stream; MapTo and CopyTo copy batches: invalid", syscall.EINVAL},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			var taken, made int64
			r, err := readerFunc(emptySchema, device.CPU, func() (*cdevice.RecordBatch, error) {
				return ownedBatch(t, func() { taken++ }), nil
			}, nil)
			require.NoError(t, err)
			defer r.Release()
			assert.Same(t, r, r.Map(func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) { return row.f(b, func() { made++ }) }))
			s := garbageStream()
			require.NoError(t, cdevice.ExportRecordReader(r, s))
			assert.EqualValues(t, errno.Code(row.code), bridge.CallGetNext(abi.As[abi.ArrowDeviceArrayStream](s), abi.As[abi.ArrowDeviceArray](garbageArray())))
			cdevice.ReleaseStruct(s)
			assert.ErrorContains(t, r.Err(), row.want)
			assert.Equal(t, []int64{1, row.makes}, []int64{taken, made})
		})
	}
}

// A reader of arrays has the methods of a reader of batches; its items must have its type.
func TestStagesOfAnArrayReader(t *testing.T) {
	checkLeaks(t)
	a, err := cdevice.WrapArray(fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,2,3]`), device.CPUDevice())
	require.NoError(t, err)
	defer a.Release()
	stops := 0
	open := func() *cdevice.ArrayReader {
		r, err := cdevice.NewArrayReader(a.Field(), device.CPU, func(yield func(*cdevice.Array, error) bool) {
			defer func() { stops++ }()
			for yield(a, nil) {
			}
		})
		require.NoError(t, err)
		return r
	}
	r := open()
	s := garbageStream()
	require.NoError(t, cdevice.ExportArrayReader(r, s))
	assert.Same(t, r, r.Map(func(a *cdevice.Array) (*cdevice.Array, error) { return a.Slice(1, 3) }).Prefetch(2))
	for got, err := range r.All() {
		require.NoError(t, err)
		assert.EqualValues(t, 2, got.Len())
		break
	}
	require.True(t, r.Next())
	closes(t, r)
	assert.Equal(t, 1, stops)
	assert.EqualValues(t, 2, r.Array().Len(), "the array that Next took is the caller's")
	assert.False(t, r.Next())
	assert.ErrorIs(t, r.Err(), cdevice.ErrReleased)
	assert.NotZero(t, bridge.CallGetNext(abi.As[abi.ArrowDeviceArrayStream](s), abi.As[abi.ArrowDeviceArray](garbageArray())))
	cdevice.ReleaseStruct(s)
	r.Release()

	words, err := cdevice.WrapArray(fromJSON(t, arrow.BinaryTypes.String, `["a"]`), device.CPUDevice())
	require.NoError(t, err)
	defer words.Release()
	r = open()
	assert.False(t, r.Map(func(*cdevice.Array) (*cdevice.Array, error) {
		words.Retain()
		return words, nil
	}).Next())
	assert.EqualError(t, r.Err(), "cdevice: read: Array.type = utf8, want the stream's: int64: invalid")
	r.Release()
}

// The function sees batches of the reader's schema, with all metadata, and gives them.
func TestMapHasTheSchemaOfTheReader(t *testing.T) {
	checkLeaks(t)
	md := arrow.NewMetadata([]string{"k"}, []string{"v"})
	schema := arrow.NewSchema(numberedSchema.Fields(), &md)
	r, err := cdevice.NewRecordReader(schema, device.CPU, yielding(nil, numbered(t, 3)...))
	require.NoError(t, err)
	defer r.Release()
	r.Map(func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
		assert.Same(t, schema, b.Schema())
		return numberedBatch(t, numberOf(t, b)+5), nil
	})
	for i := range 3 {
		require.True(t, r.Next())
		assert.Same(t, schema, r.RecordBatch().Schema())
		assert.Equal(t, i+5, numberOf(t, r.RecordBatch()))
	}
}
