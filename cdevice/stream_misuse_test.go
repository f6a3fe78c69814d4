package cdevice_test

import (
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// Streams that their users, or sources, misuse.

// A batch that could not be exported is not skipped: the stream ends with it.
func TestFailedExportEndsTheStream(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := k.export(t, asked(t, nil, numbered(t, 3)...))
		b, _ := nextOfStream(t, s)
		b.Release()
		restore := bridge.LimitBlocks(1)
		_, code := nextOfStream(t, s)
		restore()
		assert.EqualValues(t, syscall.ENOMEM, code)
		text := s.lastError()
		assert.Contains(t, text, "no memory")
		_, code = nextOfStream(t, s)
		assert.EqualValues(t, syscall.ENOMEM, code, "the same again")
		assert.Equal(t, text, s.lastError())
	})
}

func TestReleasedBatchDoesNotComeBack(t *testing.T) {
	checkLeaks(t)
	in := newScript(t, numbered(t, 1)...).reader(t)
	require.True(t, in.Next())
	b := in.RecordBatch()
	require.False(t, in.Next()) // b is released, and its memory
	iterator, err := cdevice.NewRecordReader(numberedSchema, device.CPU, yielding(nil, b))
	require.NoError(t, err)
	_, err = numbersOf(t, iterator.All())
	assert.ErrorIs(t, err, cdevice.ErrReleased)
	iterator.Release()
}

// WithReleaser also applies to refused input.
func TestReleaseWithHoldsForBadInput(t *testing.T) {
	checkLeaks(t)
	count := 0
	with := cdevice.WithReleaser(func(release func()) { count++; release() })
	s := newScript(t)
	s.stream.DeviceType = 0
	_, err := cdevice.ImportRecordReader(s.stream, with)
	assert.Error(t, err)
	assert.Equal(t, 1, count, "the stream's release")

	for name, change := range map[string]func(*abi.ArrowDeviceArray){
		"device type": func(a *abi.ArrowDeviceArray) { a.DeviceType = 12 },
		"buffers":     func(a *abi.ArrowDeviceArray) { a.Array.NBuffers = 2 },
	} {
		r := importing(t, with)(newScript(t, numbered(t, 1)...).changing(0, change))
		count = 0
		assert.False(t, r.Next())
		assert.Equal(t, 1, count, "the array's release: %s", name)
		r.Release()
	}

	count = 0
	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, cdevice.ExportRecordBatch(numbered(t, 1)[0], out, schema))
	cdevice.ReleaseStruct(schema)
	_, err = cdevice.ImportRecordBatch(out, schema, with)
	assert.ErrorIs(t, err, cdevice.ErrReleased)
	assert.Equal(t, 1, count, "of an array whose schema is bad")
	assert.Zero(t, out.Array.Release)
}

func TestNewReadersNameWhatIsMissing(t *testing.T) {
	for _, err := range []error{
		second(cdevice.NewRecordReader(numberedSchema, 0, yielding(nil))),
		second(readerFunc(numberedSchema, -1, nextOf(nil), nil)),
		second(cdevice.NewArrayReader(arrow.Field{Type: arrow.PrimitiveTypes.Int8}, 0, func(func(*cdevice.Array, error) bool) {})),
	} {
		assert.ErrorContains(t, err, "cdevice: new: device_type = ")
	}
}
