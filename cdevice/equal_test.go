package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// assertEqualArrays compares types, values and null counts of two arrays.
func assertEqualArrays(t *testing.T, want, got arrow.Array) {
	t.Helper()
	require.Equal(t, want.Len(), got.Len())
	assert.True(t, array.Equal(want, got), "want %v\n got %v", want, got)
	assert.Equal(t, want.NullN(), got.NullN(), "null count")
	if want.Len() == 0 {
		return // arrow-go prints some empty arrays as null, others as []
	}
	wantJSON, err := want.MarshalJSON()
	require.NoError(t, err)
	gotJSON, err := got.MarshalJSON()
	require.NoError(t, err)
	assert.JSONEq(t, string(wantJSON), string(gotJSON))
}

// toHost copies a to memory of a checked allocator and compares it with want.
func sameOnHost(t *testing.T, want arrow.Array, a *cdevice.Array) {
	t.Helper()
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	got, err := a.CopyToHost(background, mem)
	require.NoError(t, err)
	defer got.Release()
	assert.Zero(t, got.Data().Offset())
	assert.True(t, array.Equal(want, got), "want %v\ngot  %v", want, got)
	require.NoError(t, validate(got))
}

// sameBatchOnHost copies b to the host and compares it with want.
func sameBatchOnHost(t *testing.T, want arrow.RecordBatch, b *cdevice.RecordBatch, opts ...cdevice.CopyOption) {
	t.Helper()
	got, err := b.CopyToHost(background, nil, opts...)
	require.NoError(t, err)
	assert.True(t, array.RecordEqual(want, got), "want %v\ngot  %v", want, got)
	got.Release()
}

// sameRecord compares the rows of a batch with those of rec.
func sameRecord(t *testing.T, rec arrow.RecordBatch, b *cdevice.RecordBatch) bool {
	t.Helper()
	host, err := b.CopyToHost(background, nil)
	require.NoError(t, err)
	defer host.Release()
	return array.RecordEqual(rec, host)
}

// readFrom returns a copy of device memory.
func readFrom(t *testing.T, gpu *cudaalloc.Device, addr uintptr, size int64) []byte {
	host, err := gpu.AllocateHost(background, size)
	require.NoError(t, err)
	defer func() { require.NoError(t, host.Free(nil)) }()
	s, err := gpu.CopyStream()
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, gpu.Copy([]device.Range{{Dst: host.Ptr(), Src: device.Ptr(addr), Size: size}}, s))
	require.NoError(t, s.Synchronize(background))
	return append([]byte(nil), abi.Slice[byte](uintptr(host.Ptr()), int(size))...)
}

// isClosed asserts that a reader ends with the error of one that was closed.
func isClosed(t testing.TB, r *cdevice.RecordReader) {
	t.Helper()
	assert.ErrorIs(t, r.Err(), cdevice.ErrReleased, "before it is asked")
	assert.False(t, r.Next())
	assert.EqualError(t, r.Err(), "cdevice: read: reader: closed: invalid: already released")
	n, err := numbersOf(t, r.All())
	assert.Empty(t, n)
	assert.ErrorIs(t, err, cdevice.ErrReleased)
}
