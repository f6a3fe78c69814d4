package cdevice_test

import (
	"context"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
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

// Each function with a context returns soon after the end of the context, even if the GPU
// makes no progress, and loses nothing.

// Functions that read a batch wait for its event.
func TestGPUContextsEndWaitsForABatchThatIsNotReady(t *testing.T) {
	checkLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	for name, f := range map[string]func(context.Context, *cdevice.Array) error{
		"Synchronize": func(ctx context.Context, a *cdevice.Array) error { return a.Synchronize(ctx) },
		"CountNulls":  func(ctx context.Context, a *cdevice.Array) error { _, err := a.CountNulls(ctx); return err },
		"NumBytes":    func(ctx context.Context, a *cdevice.Array) error { _, err := a.NumBytes(ctx); return err },
		"CopyToHost":  func(ctx context.Context, a *cdevice.Array) error { _, err := a.CopyToHost(ctx, nil); return err },
		"CopyTo":      func(ctx context.Context, a *cdevice.Array) error { _, err := a.CopyTo(ctx, gpu); return err },
		"ForCuDF": func(ctx context.Context, a *cdevice.Array) error {
			return exportMade(garbageArray(), nil)(a.ForCuDF(ctx))
		},
	} {
		t.Run(name, func(t *testing.T) {
			late, open := notReady(t, m, gpu)
			part, err := late.Slice(1, 4) // which has to be looked into
			require.NoError(t, err)
			for range 3 {
				within.Context(t, name, func(ctx context.Context) error { return f(ctx, part) })
			}
			ended, cancel := context.WithCancel(background)
			cancel()
			within.Seconds(t, name+" with a context that has ended", func() error {
				assert.ErrorIs(t, f(ended, part), context.Canceled)
				return nil
			})
			open()
			within.Seconds(t, "the batch", func() error { return part.Synchronize(background) })
			want := wantText(t)
			sameOnHost(t, want, late)
			part.Release()
			late.Release()
			within.Seconds(t, "Flush", func() error { return gpu.Flush(background) })
			within.Eventually(t, "nothing is kept", func() bool { return gpu.ReadStats().Device.Live == 0 })
			assert.Zero(t, gpu.ReadStats().Lost)
		})
	}
}

// Copies behind a stream that is stuck: the copy is one range into plain memory, or
// several; it goes to memory that is page-locked; it needs more staging than there is.
func TestGPUContextsEndCopiesBehindAStuckStream(t *testing.T) {
	checkLeaks(t)
	cudatest.WithAndWithoutPools(t, cudasim.Options{}, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		s := newStream(t, gpu)
		one := copiedTo(t, numbers(t, 8000), gpu)
		rec := columnsOf(memory.DefaultAllocator, 3, 100, true)
		defer rec.Release()
		several, err := cdevice.CopyToDevice(background, rec, gpu)
		require.NoError(t, err)
		require.NoError(t, several.Synchronize(background))
		large := numbers(t, 96*mib) // both of them are less than Limits.Waiting
		pinned := cudatest.Pinned(t, gpu)
		open := m.Hold(t, s)
		on := cdevice.WithStream(s)
		for name, f := range map[string]func(context.Context) error{
			"CopyToHost, one range":      func(ctx context.Context) error { _, err := one.CopyToHost(ctx, nil, on); return err },
			"CopyToHost, several ranges": func(ctx context.Context) error { _, err := several.CopyToHost(ctx, nil, on); return err },
			"CopyToHost, page-locked":    func(ctx context.Context) error { _, err := one.CopyToHost(ctx, pinned, on); return err },
			"CopyTo the CPU":             func(ctx context.Context) error { _, err := one.CopyTo(ctx, device.CPUDevice(), on); return err },
			"CopyToDevice": func(ctx context.Context) error {
				_, err := copyArray(ctx, large, gpu, on)
				return err
			},
		} {
			for range 2 {
				within.Context(t, name, f)
			}
		}
		within.Seconds(t, "a copy on another stream", func() error {
			a, err := cdevice.CopyToDevice(background, rec, gpu)
			if err != nil {
				return err
			}
			defer a.Release()
			return a.Synchronize(background)
		})
		open()
		within.Seconds(t, "the stream", func() error { return s.Synchronize(background) })
		sameBatchOnHost(t, rec, several)
		one.Release()
		several.Release()
		within.Seconds(t, "Flush", func() error { return gpu.Flush(background) })
		within.Eventually(t, "nothing is kept", func() bool {
			live := pinned.ReadStats().Pinned.Live
			return gpu.ReadStats().Device.Live == 0 && live == 0
		})
		pinned.Trim()
		assert.Zero(t, gpu.ReadStats().Lost)
	})
}

// Unregistering waits for the GPU.
func TestGPUContextsEndUnregistering(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	r, err := hostpinned.Register(gpu, make([]byte, 1<<16))
	require.NoError(t, err)
	open := m.Stranger(t, gpu).Hold(t)
	for range 2 {
		within.Context(t, "Unregister", r.Unregister)
	}
	open()
	within.Seconds(t, "Unregister", func() error { return r.Unregister(background) })
}

// A wait that was given up does not use the producer's event after the release: the producer
// destroys it then.
func TestWaitsGivenUpLeaveTheEventAlone(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	late, open := notReady(t, m, gpu)
	for range 10 {
		within.Context(t, "Wait", late.Synchronize)
	}
	m.Sim.ResetCounters()
	within.Seconds(t, "Release", func() error { late.Release(); return nil })
	assert.Positive(t, m.Sim.Calls("cuEventDestroy"), "no work uses the batch: it is released at once")
	time.Sleep(50 * time.Millisecond) // in which a wait that is left asks again
	open()
	require.NoError(t, gpu.Flush(background))
	assert.Zero(t, m.Sim.Report().FailedCalls, "of the event that was destroyed")
	assert.Empty(t, m.Sim.Report().Violations)
}

// A large batch is copied to plain memory through page-locked memory of a bounded size.
func TestCopyToHostPageLocksLittle(t *testing.T) {
	checkLeaks(t)
	size := 512 * mib
	if testing.Short() {
		size = 256 * mib
	}
	const columns = 4
	m := cudatest.Simulated(t, cudasim.Options{NoPoison: true})
	gpu := m.GPUs[0]
	limits := gpu.Limits()
	limits.IdleAfter = 200 * time.Millisecond
	require.NoError(t, gpu.SetLimits(limits))
	before := m.Sim.Report().Live.HostBytes

	each := int64(size / columns)
	s := newStream(t, gpu)
	var data []cdevice.ArrayData
	var memories []device.Memory
	var fields []arrow.Field
	for i := range columns {
		mem, err := gpu.Allocate(background, each, s)
		require.NoError(t, err)
		for _, at := range []int64{0, each / 2, each - 8} {
			require.NoError(t, gpu.Memset(mem.Ptr()+device.Ptr(at), byte(i+1), 8, s))
		}
		memories = append(memories, mem)
		data = append(data, cdevice.ArrayData{Length: each / 8, Buffers: []device.Ptr{0, mem.Ptr()}})
		fields = append(fields, arrow.Field{Name: string(rune('a' + i)), Type: arrow.PrimitiveTypes.Int64})
	}
	require.NoError(t, s.Synchronize(background))
	batch, err := cdevice.NewRecordBatch(gpu, arrow.NewSchema(fields, nil), each/8, data, cdevice.Lifetime{Release: func() {
		for _, mem := range memories {
			assert.NoError(t, mem.FreeAfter(nil))
		}
	}})
	require.NoError(t, err)
	var rec arrow.RecordBatch
	within.Limit(t, time.Minute, "CopyToHost", func() error {
		rec, err = batch.CopyToHost(background, offHeap)
		return err
	})
	assert.Less(t, gpu.ReadStats().Pinned.Peak, int64(160*mib))
	for i := range columns {
		values := rec.Column(i).Data().Buffers()[1].Bytes()
		for _, at := range []int64{0, each / 2, each - 8} {
			for _, b := range values[at : at+8] {
				require.Equal(t, byte(i+1), b, "column %d, byte %d", i, at)
			}
		}
	}
	rec.Release()
	batch.Release()
	require.NoError(t, gpu.Flush(background))
	within.Eventually(t, "page-locked memory goes back", func() bool {
		return gpu.ReadStats().Pinned.Cached == 0 && m.Sim.Report().Live.HostBytes == before
	})
}

// A copy into page-locked memory is made by the host, in its turn on a stream that is stuck.
func TestGPUContextsEndCopiesIntoPageLockedMemory(t *testing.T) {
	checkLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	column := numbers(t, 8000)
	s := newStream(t, gpu)
	open := m.Hold(t, s)
	copied := func(ctx context.Context) error {
		a, err := copyArray(ctx, column, gpu.Pinned(), cdevice.WithStream(s))
		if err == nil {
			sameOnHost(t, column, a)
			a.Release()
		}
		return err
	}
	within.Context(t, "CopyToDevice", copied)
	open()
	within.Seconds(t, "CopyToDevice afterwards", func() error { return copied(background) })
	within.Seconds(t, "Flush", func() error { return gpu.Flush(background) })
	assert.Zero(t, gpu.ReadStats().Pinned.Live)
}

// An allocator of page-locked memory waits for memory that was freed and is still used. The
// context of the copy ends that wait too.
func TestCopyIntoPageLockedMemoryIsGivenUp(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{HostMemory: 8 << 20})
	gpu := m.GPUs[0]
	rec := columnsOf(memory.DefaultAllocator, 2, 1000, false)
	defer rec.Release()
	batch, err := cdevice.CopyToDevice(background, rec, gpu)
	require.NoError(t, err)
	require.NoError(t, batch.Synchronize(background))
	require.NoError(t, gpu.Trim(background)) // staging holds none of it

	s := newStream(t, gpu)
	open := m.Hold(t, s)
	all, err := gpu.Pinned().Allocate(background, 8<<20, nil)
	require.NoError(t, err)
	require.NoError(t, all.Free(s)) // freed, and in use until the stream goes on
	ctx, cancel := context.WithTimeout(background, 10*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err = batch.CopyToHost(ctx, cudatest.Pinned(t, gpu))
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.Less(t, time.Since(begin), 1500*time.Millisecond)
	open()
	batch.Release()
}
