package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// export exports a reader, which it releases. The stream is released at the end of the test.
func export(t testing.TB, r *cdevice.RecordReader) *cdevice.CArrowDeviceArrayStream {
	t.Helper()
	out := garbageStream()
	require.NoError(t, cdevice.ExportRecordReader(r, out))
	r.Release()
	t.Cleanup(func() { cdevice.ReleaseStruct(out) })
	return out
}

// exportPlain exports a reader, which it releases. The stream is released at the end of the
// test.
func exportPlain(t testing.TB, r *cdevice.RecordReader) *cdata.CArrowArrayStream {
	t.Helper()
	out := garbagePlainStream()
	require.NoError(t, cdevice.ExportRecordReader(r, out))
	r.Release()
	t.Cleanup(func() { cdevice.ReleaseStruct(out) })
	return out
}

// next calls get_next, and imports its array: nil at the end.
func next(t testing.TB, s *cdevice.CArrowDeviceArrayStream) (b *cdevice.RecordBatch, code int) {
	t.Helper()
	out := garbageArray()
	if code = bridge.CallGetNext(abi.As[abi.ArrowDeviceArrayStream](s), abi.As[abi.ArrowDeviceArray](out)); code != 0 || out.Array.Release == 0 {
		return nil, code
	}
	b, err := cdevice.ImportRecordBatchWithSchema(out, numberedSchema)
	require.NoError(t, err)
	return b, 0
}
