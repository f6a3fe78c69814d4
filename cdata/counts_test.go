//go:build cgo && !asan && !race

// AddressSanitizer makes the compiler allocate where it otherwise does not, and blocks are not kept then. The race detector
// makes a sync.Pool drop some of what it has.

package cdata_test

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdata"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// least is the least count of several calls: other goroutines count too, and the garbage collector clears pools.
func least(do func(), count func() int64) int64 {
	n := int64(math.MaxInt64)
	for range 10 {
		before := count()
		do()
		n = min(n, count()-before)
	}
	return n
}

func allocations() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.Mallocs)
}

// repeated is a batch with its column so many times.
func repeated(t *testing.T, columns int) arrow.RecordBatch {
	t.Helper()
	n := numbers(t, 1, 2, 3)
	schema := arrow.NewSchema(slices.Repeat(n.Schema().Fields(), columns), nil)
	rec := array.NewRecordBatch(schema, slices.Repeat(n.Columns(), columns), n.NumRows())
	t.Cleanup(rec.Release)
	return rec
}

// An export that follows another one allocates nothing in Go, and one block of C, for any number of columns, in memory of the Go heap.
// Its release calls Go once.
func TestExportCounts(t *testing.T) {
	bridge.CountCallbacks()
	for _, columns := range []int{1, 10, 100} {
		rec, out := repeated(t, columns), new(cdata.CArrowArray)
		export := func() { cdata.ExportArrowRecordBatch(rec, out, nil) }
		release := func() { require.NoError(t, cpeer.ReleaseOnThread(arrayMirror(out))) }
		inGo := func() { export(); cdata.ReleaseCArrowArray(out) }
		assert.Zero(t, least(inGo, allocations), "%d columns", columns)
		assert.EqualValues(t, 2, least(inGo, runtime.NumCgoCall), "%d columns", columns)
		assert.EqualValues(t, 1, least(func() { export(); release() }, bridge.Callbacks), "%d columns", columns)
	}
}

// A consumer in C makes two calls into Go for each batch of a stream: get_next, and release.
func TestStreamCounts(t *testing.T) {
	bridge.CountCallbacks()
	batches := slices.Repeat([]arrow.RecordBatch{repeated(t, 10)}, 30)
	s, out := exported(newSource(t, batches...)), new(cdata.CArrowArray)
	at := func(p unsafe.Pointer) uintptr { return uintptr(p) }
	next := func() {
		require.Zero(t, cpeer.CallOnThread(streamMirror(s).GetNext, at(unsafe.Pointer(s)), at(unsafe.Pointer(out))))
		require.NoError(t, cpeer.ReleaseOnThread(arrayMirror(out)))
	}
	assert.EqualValues(t, 2, least(next, bridge.Callbacks))
	cdata.ReleaseCArrowArrayStream(s)
}

// An import of few columns is one allocation, and their arrays a share of slabs.
func TestImportCounts(t *testing.T) {
	for columns, most := range map[int]int64{1: 1, 4: 1, 100: 3} {
		rec, out := repeated(t, columns), new(cdata.CArrowArray)
		taking := func(take func(arrow.RecordBatch)) func() {
			return func() {
				cdata.ExportArrowRecordBatch(rec, out, nil)
				got, err := cdata.ImportCRecordBatchWithSchema(out, rec.Schema())
				require.NoError(t, err)
				take(got)
				got.Release()
			}
		}
		assert.Equal(t, most, least(taking(func(arrow.RecordBatch) {}), allocations), "%d columns", columns)
		read := least(taking(func(rec arrow.RecordBatch) { rec.Columns() }), allocations)
		assert.LessOrEqual(t, read, most+3*int64((columns+15)/16), "%d columns", columns)
	}
}
