package cdevice_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// A stream that is stuck and a batch that is not ready hold up the work after them, and nothing
// else.

// Copies out of a batch that is not ready wait for it, each on its own.
func TestGPUBatchThatIsNotReadyHoldsUpNoOtherCopies(t *testing.T) {
	checkLeaks(t)
	cudatest.WithAndWithoutPools(t, cudasim.Options{}, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		want := wantText(t)
		late, open := notReady(t, m, gpu)

		waiting := make(chan error, 2)
		var copies [2]any
		var begun sync.WaitGroup
		begun.Add(2)
		go func() {
			begun.Done()
			got, err := late.CopyToHost(background, nil)
			copies[0] = got
			waiting <- err
		}()
		go func() {
			begun.Done()
			got, err := late.CopyTo(background, gpu)
			copies[1] = got
			waiting <- err
		}()
		begun.Wait()
		time.Sleep(20 * time.Millisecond) // in which their work is enqueued

		for range 5 {
			var another *cdevice.Array
			within.Seconds(t, "a copy to the device", func() (err error) {
				another, err = copyArray(background, want, gpu)
				return err
			})
			within.Seconds(t, "its event", func() error { return another.Synchronize(background) })
			within.Seconds(t, "a count of nulls", func() error { _, err := another.CountNulls(background); return err })
			within.Seconds(t, "a count of bytes", func() error { _, err := another.NumBytes(background); return err })
			var host arrow.Array
			within.Seconds(t, "a copy to the host", func() (err error) {
				host, err = another.CopyToHost(background, nil)
				return err
			})
			assert.True(t, array.Equal(want, host))
			host.Release()
			var second *cdevice.Array
			within.Seconds(t, "a copy of a slice", func() error {
				part, err := another.Slice(1, 3)
				if err != nil {
					return err
				}
				defer part.Release()
				if second, err = part.CopyTo(background, gpu); err != nil {
					return err
				}
				return second.Synchronize(background)
			})
			within.Seconds(t, "their release", func() error { second.Release(); another.Release(); return nil })
		}
		big := numbers(t, 8*mib)
		for range 10 {
			within.Seconds(t, "a copy that is freed", func() error {
				a, err := copyArray(background, big, gpu)
				if err != nil {
					return err
				}
				defer a.Release()
				return a.Synchronize(background)
			})
		}
		within.Eventually(t, "the memory of other copies has ended", func() bool { return gpu.ReadStats().Device.Live < mib })
		assert.Empty(t, waiting, "the copies of the batch that is not ready")

		open()
		for range 2 {
			within.Seconds(t, "a copy of the batch that was not ready", func() error { return <-waiting })
		}
		host := copies[0].(arrow.Array)
		assert.True(t, array.Equal(want, host))
		host.Release()
		sameOnHost(t, want, copies[1].(*cdevice.Array))
		copies[1].(*cdevice.Array).Release()
		late.Release()
		require.NoError(t, gpu.Flush(background))
	})
}

// The memory of batches that were exported and released waits for a stream of another library
// that is stuck; the memory of batches that were never exported does not.
func TestGPUStuckStrangerKeepsOnlyWhatWasExported(t *testing.T) {
	checkLeaks(t)
	cudatest.WithAndWithoutPools(t, cudasim.Options{}, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		for _, dev := range []*cudaalloc.Device{gpu, gpu.Pinned(), gpu.Managed()} {
			column := numbers(t, 8*mib)
			stranger := m.Stranger(t, gpu)
			open := stranger.Hold(t)
			releasedExport(t, column, dev, func(values device.Ptr) error { return stranger.Memset(values, 1, 8*mib) })
			used := func() int64 {
				s := gpu.ReadStats()
				return map[device.Type]int64{device.CUDA: s.Device.Live, device.CUDAHost: s.Pinned.Live, device.CUDAManaged: s.Managed.Live}[dev.ID().Type]
			}
			for range 20 {
				within.Seconds(t, "a copy that is freed", func() error {
					a, err := copyArray(background, column, dev)
					if err != nil {
						return err
					}
					defer a.Release()
					return a.Synchronize(background)
				})
			}
			within.Eventually(t, "what was not exported has ended", func() bool { return used() < 16*mib })
			assert.GreaterOrEqual(t, used(), int64(8*mib), "what was exported has not")
			open()
			within.Seconds(t, "Flush", func() error { return gpu.Flush(background) })
			within.Eventually(t, "what was exported has ended", func() bool { return used() == 0 })
		}
	})
}

// If all memory waits for another library's stream, allocations fail; when that stream goes on,
// there is memory again.
func TestReleasedBatchesFillTheGPU(t *testing.T) {
	checkLeaks(t)
	withAndWithoutPools(t, cudasim.Options{Memory: 64 * mib}, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		column := numbers(t, 8*mib)
		stranger := m.Stranger(t, gpu)
		open := stranger.Hold(t)
		for range 7 {
			releasedExport(t, column, gpu, func(values device.Ptr) error { return stranger.Memset(values, 1, 8*mib) })
		}
		two := numbers(t, 16*mib)
		copyTwo := func(ctx context.Context) error {
			a, err := copyArray(ctx, two, gpu)
			if err != nil {
				return err
			}
			a.Release()
			return nil
		}
		within.Context(t, "CopyToDevice", copyTwo)
		var err error
		within.Limit(t, 30*time.Second, "CopyToDevice without a deadline", func() error { err = copyTwo(background); return nil })
		assert.ErrorIs(t, err, cudaalloc.OutOfMemory)
		assert.ErrorContains(t, err, "pending work")
		open()
		within.Seconds(t, "CopyToDevice afterwards", func() error { return copyTwo(background) })
		within.Seconds(t, "Flush", func() error { return gpu.Flush(background) })
		within.Eventually(t, "everything has ended", func() bool { return gpu.ReadStats().Device.Live == 0 })
	})
}

// A release callback may wait for work of the GPU, and for memory that other releases free.
func TestReleaseCallbackMayNeedTheGPU(t *testing.T) {
	checkLeaks(t)
	withAndWithoutPools(t, cudasim.Options{Memory: 64 * mib}, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		small, large := numbers(t, 800), numbers(t, 40*mib)
		s := newStream(t, gpu)
		stranger := m.Stranger(t, gpu)
		results := make(chan error, 2)
		work := func() {
			a, err := copyArray(background, large, gpu)
			if err == nil {
				err = a.Synchronize(background)
				a.Release()
			}
			results <- err
		}
		there := copiedTo(t, small, gpu)
		out, schema := garbageArray(), garbageSchema()
		require.NoError(t, cdevice.ExportArray(there, out, schema))
		there.Release()
		imported, err := cdevice.ImportArray(out, schema, cdevice.WithDevice(gpu), cdevice.WithReleaser(func(release func()) {
			work()
			release()
		}))
		require.NoError(t, err)
		mem := filled(t, gpu, s, make([]byte, 800))
		require.NoError(t, s.Synchronize(background))
		own, err := cdevice.NewArray(gpu, arrow.PrimitiveTypes.Int64, cdevice.ArrayData{Length: 100, Buffers: []device.Ptr{0, mem.Ptr()}},
			cdevice.Lifetime{Release: func() {
				work()
				assert.NoError(t, mem.FreeAfter(nil))
			}})
		require.NoError(t, err)
		released := copiedTo(t, large, gpu)
		export := garbageArray()
		require.NoError(t, cdevice.ExportArray(released, export, nil))
		released.Release()

		open, openOurs := stranger.Hold(t), m.Hold(t, s)
		require.NoError(t, imported.UsedOn(s))
		require.NoError(t, own.UsedOn(s))
		imported.Release()
		own.Release()
		cdevice.ReleaseStruct(export) // the memory that the callbacks need
		open()
		openOurs()
		for range 2 {
			within.Limit(t, 10*time.Second, "a release callback that needs memory", func() error { return <-results })
		}
		require.NoError(t, gpu.Flush(background))
	})
}

// An owner that panics, or ends its goroutine, ends nothing but itself.
func TestGPUOwnerThatPanicsEndsNothingElse(t *testing.T) {
	checkLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	for name, f := range misbehaviours {
		s := newStream(t, gpu)
		mem := filled(t, gpu, s, make([]byte, 800))
		a, err := cdevice.NewArray(gpu, arrow.PrimitiveTypes.Int64, cdevice.ArrayData{Length: 100, Buffers: []device.Ptr{0, mem.Ptr()}},
			cdevice.Lifetime{Release: func() {
				assert.NoError(t, mem.FreeAfter(nil))
				f()
			}})
		require.NoError(t, err)
		require.NoError(t, a.UsedOn(s))
		open := m.Hold(t, s)
		a.Release()
		called := make(chan struct{})
		gpu.AfterWork(func() { close(called) })
		open()
		within.Seconds(t, name+": a function afterwards", func() error { <-called; return nil })
		within.Seconds(t, name+": Flush", func() error { return gpu.Flush(background) })
		assert.Zero(t, gpu.ReadStats().Lost)
	}
	within.Eventually(t, "they are counted", func() bool { return gpu.ReadStats().CallbackPanics == int64(len(misbehaviours)) })
}

// releasedExport makes a copy that a consumer has, uses (it is given the address of the
// values), and releases: work that is not known uses it.
func releasedExport(t *testing.T, column arrow.Array, dev device.Device, use func(values device.Ptr) error) {
	t.Helper()
	a := copiedTo(t, column, dev)
	var out abi.ArrowDeviceArray
	require.NoError(t, cdevice.ExportArray(a, abi.As[cdevice.CArrowDeviceArray](&out), nil))
	a.Release()
	require.NoError(t, use(device.Ptr(*abi.At[uintptr](out.Array.Buffers + 8))))
	cdevice.ReleaseStruct(abi.As[cdevice.CArrowDeviceArray](&out))
}

// misbehaviours are functions that do not return to their caller.
var misbehaviours = map[string]func(){
	"panic":  func() { panic("thrown by a test of callbacks") },
	"Goexit": runtime.Goexit,
}
