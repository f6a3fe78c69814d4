//go:build !asan && !race

// AddressSanitizer makes the compiler allocate where it otherwise does not.

package cdevice_test

import (
	"runtime/metrics"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// A batch's way through an exported and an imported stream costs as much as an import: neither makes a
// call between Go and C, since the import knows the export.
func TestStreamCostsPerBatch(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		for _, columns := range []int{1, 10, 1000} {
			rec, _ := wide(t, columns)
			source := endlessly(t, rec)
			r, err := k.export(t, source).importRecords()
			require.NoError(t, err)
			for range 3 { // without a stage, and with some that pass batches on
				assert.LessOrEqual(t, leastAllocs(func() {
					if !r.Next() {
						t.Error(r.Err())
					}
				}), 1.0, "batch and owner in one, for %d columns", columns)
				r.Map(same)
			}
			blocks := cdevice.ReadStats().ExportedBlocks
			require.True(t, r.Next())
			assert.Equal(t, blocks, cdevice.ReadStats().ExportedBlocks, "one exported, one released")
			intoC, intoGo := crossings(func() { require.True(t, r.Next()) })
			assert.Equal(t, [2]int64{3, 2}, [2]int64{intoC, intoGo}, "get_next, its block, and the release of the batch before")
			r.Release()
		}
	})
}

// A consumer in C makes two calls into Go for each batch, get_next and release.
func TestStreamCostsPerBatchForC(t *testing.T) {
	rec, _ := wide(t, 10)
	source := endlessly(t, rec)
	s, out := export(t, source), new(cdevice.CArrowDeviceArray)
	_, intoGo := crossings(func() {
		require.Zero(t, cpeer.CallOnThread(s.GetNext, addressOf(s), addressOf(out)))
		require.NoError(t, cpeer.ReleaseOnThread(&abi.As[abi.ArrowDeviceArray](out).Array))
	})
	assert.EqualValues(t, 2, intoGo)
	cdevice.ReleaseStruct(s)
}

// A batch's way through an asynchronous stream costs as much as an import, and the producer's task:
// requests, the queue of tasks and the options of the import need neither memory nor a goroutine per batch.
func TestAsyncStreamCostsPerBatch(t *testing.T) {
	for _, queue := range []int{1, 2, 50} {
		rec, _ := wide(t, 10)
		source := endlessly(t, rec)
		ctx := t.Context()
		handler := new(cdevice.CArrowAsyncDeviceStreamHandler)
		stream, err := cdevice.ImportAsync(ctx, handler, queue, cdevice.WithDevice(device.CPUDevice()))
		require.NoError(t, err)
		_, err = cdevice.ExportAsync(ctx, source, handler)
		require.NoError(t, err)
		source.Release()
		r, err := stream.Reader(ctx)
		require.NoError(t, err)
		for range 3 * queue { // until the queue has been full
			require.True(t, r.Next(), r.Err())
		}
		assert.LessOrEqual(t, leastAllocs(func() {
			if !r.Next() {
				t.Error(r.Err())
			}
		}), 2.0, "task, and batch and owner in one, with a queue of %d", queue)
		before := goroutinesCreated()
		for range 1000 {
			require.True(t, r.Next(), r.Err())
		}
		assert.Less(t, goroutinesCreated()-before, uint64(100), "with a queue of %d", queue)
		require.NoError(t, stream.Close(ctx))
		r.Release()
	}
}

// endlessly is a reader of the same batch for ever.
func endlessly(t *testing.T, rec arrow.RecordBatch) *cdevice.RecordReader {
	b := wrap(t, rec)
	r, err := readerFunc(rec.Schema(), device.CPU, func() (*cdevice.RecordBatch, error) {
		b.Retain()
		return b, nil
	}, nil)
	require.NoError(t, err)
	return r
}

// goroutinesCreated returns how many goroutines this process has started, or 0 where Go does not tell.
func goroutinesCreated() uint64 {
	sample := []metrics.Sample{{Name: "/sched/goroutines-created:goroutines"}} // since Go 1.26
	metrics.Read(sample)
	if sample[0].Value.Kind() == metrics.KindBad {
		return 0
	}
	return sample[0].Value.Uint64()
}

// leastAllocs is the smallest number of allocations of a call, of several counts: those of
// other goroutines are counted too, and a call with a thousand columns leaves them time.
func leastAllocs(call func()) float64 {
	least := testing.AllocsPerRun(20, call)
	for range 9 {
		least = min(least, testing.AllocsPerRun(10, call))
	}
	return least
}
