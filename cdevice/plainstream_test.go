package cdevice_test

import (
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// Streams of the C stream interface, without a device.

func garbagePlainStream() *cdata.CArrowArrayStream {
	const g = 0xdeadbeef
	s := &abi.ArrowArrayStream{GetSchema: g, GetNext: g, GetLastError: g, Release: g, PrivateData: g}
	return cdevice.ArrayStreamFromPtr(addressOf(s))
}

// exportPlain exports a reader, which it releases. The stream is released at the end of the
// test.
func exportPlain(t testing.TB, r *cdevice.RecordReader, opts ...cdevice.ExportOption) *cdata.CArrowArrayStream {
	t.Helper()
	out := garbagePlainStream()
	require.NoError(t, cdevice.ExportPlainRecordReader(background, r, out, opts...))
	r.Release()
	t.Cleanup(func() { cdevice.ReleaseCArrowArrayStream(out) })
	return out
}

func TestPlainStreamRoundTrip(t *testing.T) {
	checkLeaks(t)
	for _, n := range []int{0, 1, 5} {
		r, err := cdevice.ImportPlainRecordReader(exportPlain(t, asked(t, nil, numbered(t, n)...)))
		require.NoError(t, err)
		assert.Equal(t, device.CPU, r.DeviceType())
		assert.True(t, numberedSchema.Equal(r.Schema()))
		numbers, err := numbersOf(t, r.All())
		require.NoError(t, err)
		assert.Len(t, numbers, n)
		assert.NoError(t, r.Err())
		r.Release()
	}
}

func TestPlainStreamErrorNamesItsStruct(t *testing.T) {
	checkLeaks(t)
	s := newPlainScript(t, numbered(t, 3)...).failing(2, int(syscall.EIO), "disk on fire")
	r := s.plainReader(t)
	numbers, err := numbersOf(t, r.All())
	assert.Equal(t, upTo(2), numbers)
	var se *cdevice.StreamError
	require.ErrorAs(t, err, &se)
	assert.Equal(t, cdevice.StreamError{Struct: "ArrowArrayStream", Callback: "get_next", Code: int(syscall.EIO), Message: "disk on fire"}, *se)
	assert.EqualError(t, err, "cdevice: import: ArrowArrayStream.get_next: input/output error (errno 5): disk on fire")
	_, again := numbersOf(t, r.All())
	assert.Equal(t, err, again)
	assert.EqualValues(t, 3, s.nexts.Load(), "get_next is not called after an error")
}
