package cdevice_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// Memory that a reader's source lies in is unmapped once nothing reads it: a program that does
// so too early ends with SIGSEGV.

// usedReader counts the calls of its methods that are under way, and the references to it.
type usedReader struct {
	array.RecordReader
	refs, inside atomic.Int64
}

func (r *usedReader) Retain()  { r.refs.Add(1); r.RecordReader.Retain() }
func (r *usedReader) Release() { r.refs.Add(-1); r.RecordReader.Release() }

func (r *usedReader) Next() bool {
	r.inside.Add(1)
	defer r.inside.Add(-1)
	return r.RecordReader.Next()
}

func (r *usedReader) unused(t *testing.T) {
	t.Helper()
	assert.EqualValues(t, 0, r.refs.Load(), "references")
	assert.EqualValues(t, 0, r.inside.Load(), "calls")
}

func TestGPUMappedFileIsUnmappedAfterCloseOrTheEnd(t *testing.T) {
	checkLeaks(t)
	gpu := cudatest.One(t, cudasim.Options{}).GPUs[0]
	for i := range 400 {
		file, unmap := mappedFile(t, 64)
		rdr := &usedReader{RecordReader: inPlace(t, file, 4)}
		r, err := copyReader(background, rdr, gpu)
		require.NoError(t, err)
		rdr.RecordReader.Release()
		require.True(t, r.Next())
		if i%2 == 0 {
			require.NoError(t, r.Close(background))
		} else {
			for r.Next() {
			}
			require.NoError(t, r.Err())
		}
		r.Release()
		rdr.unused(t)
		require.NoError(t, unmap())
	}
}

// The device reads page-locked memory when the work before it is done. Close waits for that,
// Release does not.
func TestGPUCloseWaitsForCopiesOfPageLockedMemory(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		for _, read := range []int{1, 3} { // batches, and the end is behind the last
			file, unmap := mappedFile(t, 6)
			locked, err := hostpinned.Register(gpu, file, hostpinned.WithReadOnly())
			require.NoError(t, err)
			rdr := &usedReader{RecordReader: inPlace(t, file, 3)}
			stream := newStream(t, gpu)
			open := m.Hold(t, stream)
			r, err := copyReader(background, rdr, gpu, cdevice.WithStream(stream))
			require.NoError(t, err)
			rdr.RecordReader.Release()
			var first *cdevice.RecordBatch
			for range read {
				require.True(t, r.Next())
				if first == nil {
					first = r.RecordBatch()
					first.Retain()
				}
			}
			if read == 3 {
				assert.False(t, r.Next())
			}
			expires(t, r.Close)
			within.Eventually(t, "the memory alone is in use", func() bool { return rdr.refs.Load() == 0 })
			rdr.unused(t)
			within.Seconds(t, "Release", func() error { r.Release(); return nil })
			expires(t, r.Close)
			open()
			closes(t, r)
			for i := range file {
				_ = file[i] // the program may reuse it
			}
			require.NoError(t, locked.Unregister(background))
			require.NoError(t, unmap())

			back, err := first.CopyToHost(background, nil)
			require.NoError(t, err)
			numbers := back.Column(0).(*array.Int64).Int64Values()
			assert.EqualValues(t, 0, numbers[0])
			assert.EqualValues(t, 0x0101010101010101, numbers[len(numbers)-1])
			back.Release()
			first.Release()
			require.NoError(t, gpu.Flush(background))
		}
	})
}

// The same for a source in memory of the device, of which another reader's batches are copied.
func TestGPUCloseWaitsForCopiesOfDeviceMemory(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		rec := columnsOf(memory.DefaultAllocator, 2, 1000, false)
		defer rec.Release()
		b, err := cdevice.CopyToDevice(background, rec, gpu)
		require.NoError(t, err)
		stopped := false
		src, err := readerFunc(rec.Schema(), device.CUDA, nextOf(nil, b, b, b), func() { stopped = true })
		require.NoError(t, err)
		stream := newStream(t, gpu)
		open := m.Hold(t, stream)
		r, err := src.CopyTo(background, gpu, cdevice.WithStream(stream))
		require.NoError(t, err)
		src.Release()
		require.True(t, r.Next())
		expires(t, r.Close)
		open()
		closes(t, r)
		assert.True(t, stopped)
		b.Release()
		r.Release()
		require.NoError(t, gpu.Flush(background))
	})
}

// A copy that waits for its source to be ready is given up.
func TestGPUCloseEndsTheWaitForAnEvent(t *testing.T) {
	checkLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	rec := columnsOf(memory.DefaultAllocator, 2, 10, false)
	defer rec.Release()
	producer := newStream(t, gpu)
	open := m.Hold(t, producer)
	pending, err := readerFunc(rec.Schema(), device.CUDA, func() (*cdevice.RecordBatch, error) {
		return cdevice.CopyToDevice(background, rec, gpu, cdevice.WithStream(producer))
	}, nil)
	require.NoError(t, err)
	r, err := pending.CopyTo(background, device.CPUDevice()) // waits for the event
	require.NoError(t, err)
	pending.Release()
	before := cdevice.ReadStats().Goroutines
	done := make(chan struct{})
	go func() { defer close(done); r.Next() }()
	within.Eventually(t, "the source of a copy", func() bool { return cdevice.ReadStats().DeviceCopies > 0 })
	short, cancel := context.WithTimeout(background, time.Millisecond)
	defer cancel()
	_ = r.Close(short) // an error, unless the copy has not begun: the device will read that source
	<-done
	within.Eventually(t, "nothing waits for the event", func() bool { return cdevice.ReadStats().Goroutines == before })
	open()
	closes(t, r)
	r.Release()
	require.NoError(t, gpu.Flush(background))
}

// The counts of copies and of readers fall when these are given back.
func TestGPUCopiesAreCounted(t *testing.T) {
	checkLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	before := cdevice.ReadStats()
	rec := columnsOf(memory.DefaultAllocator, 2, 10, false)
	defer rec.Release()
	stream := newStream(t, gpu)
	open := m.Hold(t, stream)
	batch, err := cdevice.CopyToDevice(background, rec, gpu, cdevice.WithStream(stream))
	require.NoError(t, err)
	column, err := copyArray(background, rec.Column(0), gpu, cdevice.WithStream(stream))
	require.NoError(t, err)
	assert.Equal(t, before.DeviceCopies+2, cdevice.ReadStats().DeviceCopies)
	part, err := batch.Slice(0, 5)
	require.NoError(t, err)
	batch.Release()
	assert.Equal(t, before.DeviceCopies+2, cdevice.ReadStats().DeviceCopies, "the slice has it")
	column.Release()
	assert.Equal(t, before.DeviceCopies+1, cdevice.ReadStats().DeviceCopies, "it is the device's to free")
	require.NoError(t, part.UsedOn(stream))
	part.Release()
	assert.Equal(t, before.DeviceCopies+1, cdevice.ReadStats().DeviceCopies, "work may use it")
	open()
	require.NoError(t, gpu.Flush(background))
	within.Eventually(t, "the end of the copy", func() bool { return cdevice.ReadStats().DeviceCopies == before.DeviceCopies })

	ctx, cancel := context.WithCancel(background)
	cancel()
	_, err = cdevice.CopyToDevice(ctx, rec, gpu)
	require.Error(t, err)
	assert.Equal(t, before.DeviceCopies, cdevice.ReadStats().DeviceCopies)
}
