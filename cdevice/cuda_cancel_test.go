package cdevice_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
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

// A copy to a device waits for a stream that is stuck where it needs more staging memory than there is, and where the host
// makes it in its turn. (Tests of copyplan have copies to the host.)
func TestGPUContextsEndCopiesBehindAStuckStream(t *testing.T) {
	checkLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	s := newStream(t, gpu)
	into := func(dev device.Device, column arrow.Array) func(context.Context) error {
		return func(ctx context.Context) error {
			a, err := copyArray(ctx, column, dev, cdevice.WithStream(s))
			if err == nil {
				sameOnHost(t, column, a)
				a.Release()
			}
			return err
		}
	}
	copies := map[string]func(context.Context) error{
		"through staging memory": into(gpu, numbers(t, 96*mib)), "by the host": into(gpu.Pinned(), numbers(t, 8000)),
	}
	open := m.Hold(t, s)
	for name, do := range copies {
		for range 2 {
			within.Context(t, name, do)
		}
	}
	open()
	for name, do := range copies {
		within.Seconds(t, name+" afterwards", func() error { return do(background) })
	}
	within.Seconds(t, "Flush", func() error { return gpu.Flush(background) })
	within.Eventually(t, "nothing is kept", func() bool { return gpu.ReadStats().Device.Live+gpu.ReadStats().Pinned.Live == 0 })
	assert.Zero(t, gpu.ReadStats().Lost)
}

// Calls that are given up leave no more work on a stream that is stuck than it takes: neither they nor others block in the
// driver.
func TestCallsThatAreGivenUpDoNotFillAStream(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{NoPools: true})
	gpu := m.GPUs[0]
	s, rec := newStream(t, gpu), twoColumns(t)
	there, err := cdevice.CopyToDevice(background, rec, gpu)
	require.NoError(t, err)
	open := m.Hold(t, s)
	for name, f := range map[string]func(context.Context) error{
		"to the host": func(ctx context.Context) error {
			_, err := there.CopyToHost(ctx, nil, cdevice.WithStream(s))
			return err
		},
		"to page-locked memory": func(ctx context.Context) error {
			_, err := cdevice.CopyToDevice(ctx, rec, gpu.Pinned(), cdevice.WithStream(s))
			return err
		},
	} {
		within.Seconds(t, name, func() error {
			for range 1100 {
				ctx, cancel := context.WithTimeout(background, 100*time.Microsecond)
				err := f(ctx)
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) {
					return fmt.Errorf("given up: %w", err)
				}
			}
			return nil
		})
	}
	within.Seconds(t, "a copy on another stream", func() error {
		other, err := cdevice.CopyToDevice(background, rec, gpu)
		if err == nil {
			other.Release()
		}
		return err
	})
	assert.Error(t, s.(*cudaalloc.Stream).AwaitRoom(endedContext()), "the stream is full")
	open()
	within.Seconds(t, "room", func() error { return s.(*cudaalloc.Stream).AwaitRoom(background) })
	there.Release()
	within.Seconds(t, "Flush", func() error { return gpu.Flush(background) })
}

func endedContext() context.Context {
	ctx, cancel := context.WithCancel(background)
	cancel()
	return ctx
}

// A stream takes fewer copies than a batch has columns: what the driver would wait for, a copy waits for until its
// context ends.
func TestContextsEndCopiesOfManyColumnsBehindAStuckStream(t *testing.T) {
	checkLeaks(t)
	const columns, rows, mostPending = 100, 8, 28
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	want := columnsOf(memory.DefaultAllocator, columns, rows, false)
	defer want.Release()
	s := newStream(t, gpu)
	var data []cdevice.ArrayData
	var memories []device.Memory
	for i := range columns {
		mem := filled(t, gpu, s, arrow.Int64Traits.CastToBytes(want.Column(i).(*array.Int64).Int64Values()))
		memories = append(memories, mem)
		data = append(data, cdevice.ArrayData{Length: rows, Buffers: []device.Ptr{0, mem.Ptr()}})
	}
	require.NoError(t, s.Synchronize(background))
	stuck := newStream(t, gpu)
	open := m.Hold(t, stuck)
	e, err := gpu.NewEvent()
	require.NoError(t, err)
	require.NoError(t, stuck.Record(e))
	batch, err := cdevice.NewRecordBatch(gpu, want.Schema(), rows, data, cdevice.Lifetime{Ready: e, Release: func() {
		for _, mem := range memories {
			assert.NoError(t, mem.FreeAfter(nil))
		}
	}})
	require.NoError(t, err)
	for name, f := range map[string]func(context.Context) error{
		"CopyToHost":                    func(ctx context.Context) error { _, err := batch.CopyToHost(ctx, nil); return err },
		"CopyToHost, page-locked":       func(ctx context.Context) error { _, err := batch.CopyToHost(ctx, cudatest.Pinned(t, gpu)); return err },
		"CopyTo memory of the same GPU": func(ctx context.Context) error { _, err := batch.CopyTo(ctx, gpu); return err },
	} {
		m.Sim.ResetCounters()
		within.Context(t, name, f)
		assert.LessOrEqual(t, m.Sim.Calls("cuMemcpyAsync"), mostPending, name)
	}
	open()
	there, err := batch.CopyTo(background, gpu)
	require.NoError(t, err)
	for _, b := range []*cdevice.RecordBatch{batch, there} {
		back, err := b.CopyToHost(background, nil)
		require.NoError(t, err)
		assert.True(t, array.RecordEqual(want, back))
		back.Release()
		b.Release()
	}
	require.NoError(t, gpu.Flush(background))
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
