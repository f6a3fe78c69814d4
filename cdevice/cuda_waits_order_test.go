package cdevice_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// The order of waits, with streams that are held back.

// An import whose event is pending returns at once; reads wait.
func TestGPUPendingImport(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		for name, text := range map[string]bool{"int64": false, "utf8": true} {
			t.Run(name, func(t *testing.T) {
				rec := columnsOf(memory.DefaultAllocator, 3, 100, text)
				defer rec.Release()
				producer := newStream(t, gpu)
				open := m.Hold(t, producer)
				batch, err := cdevice.CopyToDevice(background, rec, gpu, cdevice.WithStream(producer))
				require.NoError(t, err, "returns although the copy is held")
				out, schema := garbageArray(), garbageSchema()
				require.NoError(t, cdevice.ExportRecordBatch(batch, out, schema))
				batch.Release()
				imported, err := cdevice.ImportRecordBatch(out, schema, cdevice.WithDevice(gpu))
				require.NoError(t, err)
				defer imported.Release()
				assert.False(t, ready(t, imported))
				ctx, cancel := context.WithCancel(background)
				wait := make(chan error)
				go func() {
					_, err := imported.CopyToHost(ctx, nil)
					wait <- err
				}()
				cancel()
				assert.ErrorIs(t, <-wait, context.Canceled)
				assert.ErrorIs(t, imported.Synchronize(ctx), context.Canceled)

				var copied *cdevice.RecordBatch
				if !text { // nothing of it has to be read first
					copied, err = imported.CopyTo(background, gpu)
					require.NoError(t, err, "returns although the source is pending")
					assert.False(t, ready(t, copied))
				}

				done := make(chan arrow.RecordBatch, 1)
				go func() {
					back, err := imported.CopyToHost(background, nil)
					assert.NoError(t, err)
					done <- back
				}()
				select {
				case <-done:
					t.Error("it was copied before it was there")
				case <-time.After(time.Millisecond):
				}
				open()
				back := <-done
				assert.True(t, array.RecordEqual(rec, back))
				back.Release()
				require.NoError(t, imported.Synchronize(background))
				assert.True(t, ready(t, imported))
				if copied != nil {
					back, err := copied.CopyToHost(background, nil)
					require.NoError(t, err)
					assert.True(t, array.RecordEqual(rec, back))
					back.Release()
					copied.Release()
				}
			})
		}
	})
}

// Work on any stream can be made to wait for the batch.
func TestGPUWaitOn(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{Delay: 50 * time.Microsecond})
	gpu := m.GPUs[0]
	rec := columnsOf(memory.DefaultAllocator, 2, 1000, false)
	defer rec.Release()
	for name, consumer := range map[string]device.Stream{"own": newStream(t, gpu), "legacy": gpu.Legacy()} {
		t.Run(name, func(t *testing.T) {
			producer := newStream(t, gpu)
			open := m.Hold(t, producer)
			batch, err := cdevice.CopyToDevice(background, rec, gpu, cdevice.WithStream(producer))
			require.NoError(t, err)
			require.NoError(t, batch.WaitOn(consumer))
			require.NoError(t, batch.UsedOn(consumer))
			e, err := gpu.NewEvent()
			require.NoError(t, err)
			require.NoError(t, consumer.Record(e))
			done, err := e.Query()
			require.NoError(t, err)
			assert.False(t, done)
			batch.Release()
			open()
			require.NoError(t, e.Synchronize(background))
			require.NoError(t, e.Close())
		})
	}
}

// The memory of an import is released after the work that used it, and not before.
func TestGPUReleaseAfterUse(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	released := new(atomic.Bool)
	a := pendingArray(t, gpu, released)
	s := newStream(t, gpu)
	open := m.Hold(t, s)
	require.NoError(t, a.WaitOn(s))
	require.NoError(t, a.UsedOn(s))
	a.Release()
	assert.False(t, released.Load(), "its stream has work to do")
	open()
	require.NoError(t, gpu.Flush(background))
	assert.True(t, released.Load())

	unused := new(atomic.Bool)
	b := pendingArray(t, gpu, unused)
	b.Release()
	assert.True(t, unused.Load(), "nobody used it: at once")
}

// pendingArray is an imported array whose release is noted.
func pendingArray(t *testing.T, gpu device.Device, released *atomic.Bool) *cdevice.Array {
	rec := columnsOf(memory.DefaultAllocator, 1, 100, false)
	defer rec.Release()
	there, err := copyArray(background, rec.Column(0), gpu)
	require.NoError(t, err)
	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, cdevice.ExportArray(there, out, schema))
	there.Release()
	a, err := cdevice.ImportArray(out, schema, cdevice.WithDevice(gpu), cdevice.WithReleaser(func(release func()) {
		release()
		released.Store(true)
	}))
	require.NoError(t, err)
	return a
}

// A consumer releases our memory while its work still reads it, on a thread that Go
// never saw: the memory is not used again before that work is done.
func TestGPUReleasedWhileInUse(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		releasedWhileInUse(t, m, func(there *cdevice.Array) *cdevice.Array { return there })
	})
}

// The same of a batch that has an event of its own, which is closed when the consumer releases it.
func TestGPURecordedEventReleasedWhileInUse(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		s := newStream(t, m.GPUs[0])
		releasedWhileInUse(t, m, func(there *cdevice.Array) *cdevice.Array {
			return made(t, there)(there.RecordEvent(s))
		})
	})
}

// releasedWhileInUse exports an array, releases it while work of a consumer waits to read it, and
// checks what that work has read. prepare makes the array to export of a copy, which it takes.
func releasedWhileInUse(t *testing.T, m *cudatest.Machine, prepare func(*cdevice.Array) *cdevice.Array) {
	t.Helper()
	gpu := m.GPUs[0]
	rec := columnsOf(memory.DefaultAllocator, 1, 1000, false)
	defer rec.Release()
	there, err := copyArray(background, rec.Column(0), gpu)
	require.NoError(t, err)
	require.NoError(t, there.Synchronize(background))
	there = prepare(there)
	var out abi.ArrowDeviceArray
	require.NoError(t, cdevice.ExportArray(there, abi.As[cdevice.CArrowDeviceArray](&out), nil))
	there.Release()

	src := *abi.At[uintptr](out.Array.Buffers + 8)
	target, err := gpu.Allocate(background, 8000, nil)
	require.NoError(t, err)
	require.NoError(t, gpu.Legacy().Synchronize(background))
	consumer := newStream(t, gpu)
	open := m.Hold(t, consumer)
	require.NoError(t, gpu.Copy([]device.Range{{Dst: target.Ptr(), Src: device.Ptr(src), Size: 8000}}, consumer))
	require.NoError(t, cpeer.ReleaseOnThread(&out.Array))
	for range 4 { // would be given the memory, if it were free
		other, err := copyArray(background, rec.Column(0), gpu)
		require.NoError(t, err)
		other.Release()
	}
	open()
	require.NoError(t, consumer.Synchronize(background))
	host, err := gpu.AllocateHost(background, 8000)
	require.NoError(t, err)
	require.NoError(t, gpu.Copy([]device.Range{{Dst: host.Ptr(), Src: target.Ptr(), Size: 8000}}, consumer))
	require.NoError(t, consumer.Synchronize(background))
	assert.Equal(t, rec.Column(0).(*array.Int64).Int64Values(), abi.Slice[int64](uintptr(host.Ptr()), 1000))
	require.NoError(t, host.Free(nil))
	require.NoError(t, target.Free(nil))
}

// A batch whose memory work on a stream still fills is exported with an event behind that work.
func TestGPURecordEvent(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	rec := columnsOf(memory.DefaultAllocator, 1, 100, false)
	defer rec.Release()
	there, err := cdevice.CopyToDevice(background, rec, gpu)
	require.NoError(t, err)
	s := newStream(t, gpu)
	open := m.Hold(t, s)
	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, exportMade(out, schema)(there.RecordEvent(s)))
	require.NoError(t, there.Synchronize(background))
	imported, err := cdevice.ImportRecordBatch(out, schema, cdevice.WithDevice(gpu))
	require.NoError(t, err)
	assert.False(t, ready(t, imported))
	open()
	require.NoError(t, imported.Synchronize(background))
	imported.Release()

	// The event covers the batch's own too.
	late := newStream(t, gpu)
	open = m.Hold(t, late)
	pending, err := cdevice.CopyToDevice(background, rec, gpu, cdevice.WithStream(late))
	require.NoError(t, err)
	out, schema = garbageArray(), garbageSchema()
	require.NoError(t, exportMade(out, schema)(pending.RecordEvent(s)))
	pending.Release()
	imported, err = cdevice.ImportRecordBatch(out, schema, cdevice.WithDevice(gpu))
	require.NoError(t, err)
	assert.False(t, ready(t, imported))
	open()
	require.NoError(t, imported.Synchronize(background))
	imported.Release()

	synced := garbageArray()
	recorded, err := there.RecordEvent(s)
	require.NoError(t, err)
	require.NoError(t, recorded.Synchronize(background))
	require.NoError(t, cdevice.ExportRecordBatch(recorded, synced, nil))
	recorded.Release()
	assert.Zero(t, synced.SyncEvent)
	cdevice.ReleaseStruct(synced)
	there.Release()
}

// Page-locked and managed memory keeps its type through C. The host looks at it without a
// copy, once it is ready; AsCPU waits for that and calls it the CPU's.
func TestGPUHostReadableMemoryThroughC(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		rec := columnsOf(memory.DefaultAllocator, 2, 100, true)
		defer rec.Release()
		for _, d := range m.Devices(t) {
			if !d.CPUAccessible() {
				continue
			}
			batch, err := cdevice.CopyToDevice(background, rec, d)
			require.NoError(t, err)
			producer := newStream(t, d)
			open := m.Hold(t, producer)
			out, schema := garbageArray(), garbageSchema()
			require.NoError(t, exportMade(out, schema)(batch.RecordEvent(producer)))
			batch.Release()
			assert.EqualValues(t, d.ID().Type, out.DeviceType)
			assert.EqualValues(t, d.ID().Ordinal, out.DeviceID)
			imported, err := cdevice.ImportRecordBatch(out, schema, cdevice.WithDevice(d))
			require.NoError(t, err)
			assert.False(t, ready(t, imported))

			short, cancel := context.WithTimeout(background, time.Millisecond)
			_, err = imported.HostView(short)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			_, err = imported.AsCPU(short)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
			cancel()
			open()
			view, err := imported.HostView(background)
			require.NoError(t, err)
			assert.True(t, array.RecordEqual(rec, view))
			view.Release()

			out = garbageArray()
			require.NoError(t, exportMade(out, nil)(imported.AsCPU(background)))
			imported.Release()
			assert.EqualValues(t, device.CPU, out.DeviceType)
			assert.Zero(t, out.SyncEvent)
			cdevice.ReleaseStruct(out)
		}
	})
}
