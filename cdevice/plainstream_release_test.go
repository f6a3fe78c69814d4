package cdevice_test

import (
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// TestPlainStreamRelease is about release of a plain stream of ours.
func TestPlainStreamRelease(t *testing.T) {
	// "The release callback must not assume that any other callback was called."
	t.Run("before any other call", func(t *testing.T) {
		checkLeaks(t)
		r, err := cdevice.NewRecordReader(numberedSchema, device.CPU, func(func(*cdevice.RecordBatch, error) bool) {
			t.Error("the iterator was started")
		})
		require.NoError(t, err)
		cdevice.ReleaseStruct(exportPlain(t, r))
	})
	// The source may release the very stream that asks it.
	t.Run("inside its own callback", func(t *testing.T) {
		checkLeaks(t)
		b := numberedBatch(t, 1)
		defer b.Release()
		var s *cdata.CArrowArrayStream
		stops := 0
		r, err := readerFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) {
			cdevice.ReleaseStruct(s)
			assert.Zero(t, stops, "it is still being asked")
			b.Retain()
			return b, nil
		}, func() { stops++ })
		require.NoError(t, err)
		s = exportPlain(t, r)
		got, code := askPlain(t, s)
		require.Zero(t, code)
		got.Release()
		assert.Equal(t, 1, stops)
	})
	// A consumer that goes on with a stream it released gets an error, and no crash.
	t.Run("calls after it", func(t *testing.T) {
		checkLeaks(t)
		s := exportPlain(t, asked(t, nil, numbered(t, 1)...))
		stale := *plainStream(s)
		cdevice.ReleaseStruct(s)
		assert.EqualValues(t, syscall.EINVAL, bridge.CallPlainGetNext(&stale, plainArray(garbagePlain())))
		assert.EqualValues(t, syscall.EINVAL, bridge.CallPlainGetSchema(&stale, new(abi.ArrowSchema)))
		assert.Empty(t, bridge.CallPlainGetLastError(&stale))
		bridge.CallPlainStreamRelease(&stale)
		assert.Zero(t, stale.Release)
	})
}

// Arrays are released on their own: before the stream, and after it.
func TestPlainArraysOutliveTheirStream(t *testing.T) {
	checkLeaks(t)
	stops := 0
	r, err := readerFunc(numberedSchema, device.CPU, nextOf(nil, numbered(t, 3)...), func() { stops++ })
	require.NoError(t, err)
	s := exportPlain(t, r)
	b, code := askPlain(t, s)
	require.Zero(t, code)
	cdevice.ReleaseStruct(s)
	assert.Zero(t, plainStream(s).Release, "release marks the stream released")
	cdevice.ReleaseStruct(s)
	assert.Equal(t, 1, stops, "the source was stopped in the middle, once")
	assert.Equal(t, 0, numberOf(t, b))
	b.Release()
}

// "The stream may be moved": a bitwise copy, and the source is marked released.
func TestPlainStreamMayBeMoved(t *testing.T) {
	checkLeaks(t)
	s := exportPlain(t, asked(t, nil, numbered(t, 2)...))
	moved := *plainStream(s)
	plainStream(s).Release = 0
	b, code := askPlain(t, cdevice.ArrayStreamFromPtr(addressOf(&moved)))
	require.Zero(t, code)
	b.Release()
	r, err := cdevice.ImportRecordReader(cdevice.ArrayStreamFromPtr(addressOf(&moved)))
	require.NoError(t, err)
	defer r.Release()
	numbers, err := numbersOf(t, r.All())
	require.NoError(t, err)
	assert.Equal(t, []int{1}, numbers)
}

// A consumer may call from any thread, also from one that Go has never seen.
func TestPlainStreamOnForeignThreads(t *testing.T) {
	checkLeaks(t)
	for _, r := range []*cdevice.RecordReader{iterated(t, errSource, numbered(t, 5)...), asked(t, errSource, numbered(t, 5)...)} {
		s := plainStream(exportPlain(t, r))
		var schema abi.ArrowSchema
		require.Zero(t, cpeer.CallOnThread(s.GetSchema, addressOf(s), addressOf(&schema)))
		cdevice.ReleaseStruct(cdevice.SchemaFromPtr(addressOf(&schema)))
		for i := range 5 {
			out := garbagePlain()
			require.Zero(t, cpeer.CallOnThread(s.GetNext, addressOf(s), addressOf(plainArray(out))))
			b, err := cdevice.ImportRecordBatchWithSchema(out, numberedSchema)
			require.NoError(t, err)
			assert.Equal(t, i, numberOf(t, b))
			b.Release()
		}
		assert.EqualValues(t, syscall.EIO, cpeer.CallOnThread(s.GetNext, addressOf(s), addressOf(plainArray(garbagePlain()))))
		cpeer.CallOnThread(s.Release, addressOf(s), 0)
		assert.Zero(t, s.Release)
	}
}

// A consumer that breaks the rule and calls from many threads at once harms only itself.
func TestConcurrentConsumerOfAPlainStream(t *testing.T) {
	checkLeaks(t)
	const n = 200
	s := exportPlain(t, iterated(t, errSource, numbered(t, n)...))
	var seen atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				out := garbagePlain()
				if bridge.CallPlainGetNext(plainStream(s), plainArray(out)) != 0 {
					plainError(s)
					return
				}
				seen.Add(1)
				cdevice.ReleaseStruct(out)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, n, seen.Load())
}

// The reader that was exported and the stream share the batches; both may end first.
func TestPlainExportSharesItsReader(t *testing.T) {
	checkLeaks(t)
	r := asked(t, nil, numbered(t, 3)...)
	s := garbagePlainStream()
	require.NoError(t, cdevice.ExportRecordReader(r, s))
	require.True(t, r.Next())
	b, _ := askPlain(t, s)
	assert.Equal(t, 1, numberOf(t, b))
	b.Release()
	cdevice.ReleaseStruct(s)
	require.True(t, r.Next())
	assert.Equal(t, 2, numberOf(t, r.RecordBatch()))
	r.Release()
}
