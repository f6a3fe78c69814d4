package cdevice_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Pairs of accesses that only a wait of this package orders. No stream is held back: the
// simulator reports a pair without its wait, in either order of the two.

// used is a batch or an array that a consumer's stream reads.
type used interface {
	WaitOn(device.Stream) error
	UsedOn(device.Stream) error
	Release()
}

// The same for an import, where the consumer records its work. The producer reuses the memory as
// soon as it is released.
func TestGPUImportIsReleasedBehindItsUsers(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		for _, name := range []string{"batch", "array"} {
			producer, consumer := newStream(t, gpu), newStream(t, gpu)
			batch, want := filledByTwo(t, gpu, producer, producer)
			want.Release()
			column := batch.Column(0)
			values := column.Buffers()[1]
			reuse := cdevice.WithReleaser(func(release func()) {
				assert.NoError(t, gpu.Memset(values, 0, 4000, producer))
				release()
			})
			out, schema := garbageArray(), garbageSchema()
			var all used
			var err error
			if name == "array" {
				require.NoError(t, exportMade(out, schema)(column.WithEvent(producer)))
				all, err = cdevice.ImportArray(out, schema, cdevice.WithDevice(gpu), reuse)
			} else {
				require.NoError(t, exportMade(out, schema)(batch.WithEvent(producer)))
				all, err = cdevice.ImportRecordBatch(out, schema, cdevice.WithDevice(gpu), reuse)
			}
			require.NoError(t, err)
			column.Release()
			batch.Release()
			require.NoError(t, all.WaitOn(consumer))
			require.NoError(t, all.UsedOn(consumer))
			target, err := gpu.Allocate(background, 4000, consumer)
			require.NoError(t, err)
			require.NoError(t, gpu.Copy([]device.Range{{Dst: target.Ptr(), Src: values, Size: 4000}}, consumer))
			all.Release()
			require.NoError(t, gpu.Flush(background))
			require.NoError(t, target.Free(consumer))
		}
	})
}

// A recorded event covers the stream and the batch's own event.
func TestGPURecordedEventCoversTheBatch(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		rec := columnsOf(memory.DefaultAllocator, 2, 1000, false)
		defer rec.Release()
		pending, err := cdevice.CopyToDevice(background, rec, gpu, cdevice.WithStream(newStream(t, gpu)))
		require.NoError(t, err)
		imported := sent(t, made(t, pending)(pending.WithEvent(newStream(t, gpu))), gpu)
		copied, err := imported.CopyTo(background, gpu, cdevice.WithStream(newStream(t, gpu)))
		require.NoError(t, err)
		sameBatchOnHost(t, rec, copied)
		copied.Release()
		imported.Release()
	})
}

// filledOn is [1, 2, 3] in memory that work on s fills, without an event.
func filledOn(t *testing.T, dev device.Device, s device.Stream) *cdevice.Array {
	t.Helper()
	numbers := filled(t, dev, s, arrow.Int64Traits.CastToBytes([]int64{1, 2, 3}))
	a, err := cdevice.NewArray(dev, arrow.PrimitiveTypes.Int64, cdevice.ArrayData{Length: 3, Buffers: []device.Ptr{0, numbers.Ptr()}},
		cdevice.Lifetime{Release: func() { assert.NoError(t, numbers.FreeAfter(nil)) }})
	require.NoError(t, err)
	return a
}

// An export without an event is one that may be read at once: by the host, or on any
// stream.
func TestGPUExportsWithoutEventWaitForTheStream(t *testing.T) {
	checkLeaks(t)
	want := fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,2,3]`)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		for _, dev := range m.Devices(t) {
			for _, name := range []string{"AsCPU", "Synchronize"} {
				if name == "AsCPU" && !dev.CPUAccessible() {
					continue
				}
				s := newStream(t, dev)
				a := filledOn(t, dev, s)
				out := garbageArray()
				a = made(t, a)(a.WithEvent(s))
				if name == "AsCPU" {
					require.NoError(t, exportMade(out, nil)(a.AsCPU(background)))
				} else {
					require.NoError(t, a.Synchronize(background))
					require.NoError(t, cdevice.ExportArray(a, out, nil))
				}
				a.Release()
				assert.Zero(t, out.SyncEvent, name)
				if dev.CPUAccessible() {
					values := *abi.At[uintptr](out.Array.Buffers + 8)
					m.HostRead(device.Ptr(values), 24)
					assert.Equal(t, []int64{1, 2, 3}, abi.Slice[int64](values, 3), name)
				}
				var opts []cdevice.ImportOption
				if name == "Synchronize" {
					opts = append(opts, cdevice.WithDevice(dev))
				}
				back, err := cdevice.ImportArrayWithType(out, arrow.PrimitiveTypes.Int64, opts...)
				require.NoError(t, err)
				sameOnHost(t, want, back)
				back.Release()
				require.NoError(t, dev.Flush(background))
			}
		}
	})
}

// Reads of the host in CPU-accessible memory wait for the event. A pending copy fills
// its destination with garbage on the simulated machine whose work is lazy. (Tests of copyplan have the copies and counts.)
func TestGPUPendingHostMemoryIsReadBehindItsEvent(t *testing.T) {
	checkLeaks(t)
	want := wantText(t)
	reads := map[string]func(*testing.T, context.Context, *cdevice.Array){
		"view": func(t *testing.T, ctx context.Context, a *cdevice.Array) {
			got, err := a.HostView(ctx)
			require.NoError(t, err)
			assert.True(t, array.Equal(want, got), "%v", got)
			got.Release()
		},
		"export": func(t *testing.T, ctx context.Context, a *cdevice.Array) {
			out := garbageArray()
			require.NoError(t, exportMade(out, nil)(a.AsCPU(ctx)))
			back, err := cdevice.ImportArrayWithType(out, arrow.BinaryTypes.String)
			require.NoError(t, err)
			sameOnHost(t, want, back)
			back.Release()
		},
		"wait": func(t *testing.T, ctx context.Context, a *cdevice.Array) {
			require.NoError(t, a.Synchronize(ctx))
			assert.Equal(t, []byte("abbccc"), abi.Slice[byte](uintptr(a.Buffers()[2]), 6))
		},
		"full validation": func(t *testing.T, ctx context.Context, a *cdevice.Array) {
			dev, err := a.Device()
			require.NoError(t, err)
			back := throughC(t, a, cdevice.WithDevice(dev))
			require.NoError(t, back.ValidateFull(ctx))
			sameOnHost(t, want, back)
			back.Release()
		},
	}
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		for _, dev := range m.Devices(t) {
			if !dev.CPUAccessible() {
				continue
			}
			for name, read := range reads {
				t.Run(dev.ID().String()+"/"+name, func(t *testing.T) {
					a := pendingText(t, dev, newStream(t, dev))
					for _, p := range a.Buffers() {
						require.NotZero(t, p)
					}
					read(t, background, a)
					for i, size := range []int64{1, 20, 6} {
						m.HostRead(a.Buffers()[i], size)
					}
					a.Release()
					require.NoError(t, dev.Flush(background))
				})
			}
		}
	})
}

// The consumer's read comes after the producer's write on any pair of streams, even if the consumer
// releases the batch before either has begun.
func TestGPUConsumersOnEveryStream(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		rec := columnsOf(memory.DefaultAllocator, 2, 1000, false)
		defer rec.Release()
		same := func(producer device.Stream) device.Stream { return producer }
		own := func(device.Stream) device.Stream { return newStream(t, gpu) }
		legacy := func(device.Stream) device.Stream { return gpu.Legacy() }
		perThread := func(device.Stream) device.Stream { return gpu.PerThread() }
		for name, streams := range map[string][2]func(device.Stream) device.Stream{
			"own, same":             {own, same},
			"own, another":          {own, own},
			"own, legacy":           {own, legacy},
			"own, per thread":       {own, perThread},
			"legacy, own":           {legacy, own},
			"legacy, per thread":    {legacy, perThread},
			"per thread, same":      {perThread, same},
			"per thread, own":       {perThread, own},
			"per thread, legacy":    {perThread, legacy},
			"legacy, same":          {legacy, same},
			"per thread, another's": {perThread, nil}, // that of another thread
		} {
			t.Run(name, func(t *testing.T) {
				runtime.LockOSThread() // the per-thread stream is this thread's
				defer runtime.UnlockOSThread()
				producer := streams[0](nil)
				open := m.Hold(t, producer)
				batch, err := cdevice.CopyToDevice(background, rec, gpu, cdevice.WithStream(producer))
				require.NoError(t, err)
				imported := sent(t, batch, gpu)
				consume := func(consumer device.Stream) {
					copied, err := imported.CopyTo(background, gpu, cdevice.WithStream(consumer))
					imported.Release()
					if !assert.NoError(t, err) {
						return
					}
					defer copied.Release()
					done, err := copied.Ready()
					assert.NoError(t, err)
					assert.False(t, done)
					open()
					back, err := copied.CopyToHost(background, nil, cdevice.WithStream(consumer))
					if assert.NoError(t, err) {
						assert.True(t, array.RecordEqual(rec, back))
						back.Release()
					}
				}
				if streams[1] != nil {
					consume(streams[1](producer))
				} else {
					onThread(func() { consume(gpu.PerThread()) })
				}
			})
		}
	})
}

// onThread runs f on an OS thread that runs nothing else, and ends with it.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

// A producer that fills its memory once more records its event again: an import waits for
// the latest record, however often it was ready before.
func TestGPUEventThatIsRecordedAgain(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		producer := newStream(t, gpu)
		numbers := filled(t, gpu, producer, arrow.Int64Traits.CastToBytes([]int64{1, 2, 3}))
		e, err := gpu.NewEvent()
		require.NoError(t, err)
		require.NoError(t, producer.Record(e))
		a, err := cdevice.NewArray(gpu, arrow.PrimitiveTypes.Int64, cdevice.ArrayData{Length: 3, Buffers: []device.Ptr{0, numbers.Ptr()}},
			cdevice.Lifetime{Ready: e, Release: func() { assert.NoError(t, numbers.FreeAfter(nil)) }})
		require.NoError(t, err)
		imported := throughC(t, a, cdevice.WithDevice(gpu))
		a.Release()
		require.NoError(t, producer.Synchronize(background)) // Synchronize of imported would end its event
		assert.True(t, ready(t, imported))
		sameOnHost(t, fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,2,3]`), imported)

		open := m.Hold(t, producer)
		upload(t, gpu, []device.Range{{Dst: numbers.Ptr(), Src: device.Ptr(addressOf(&[]int64{4, 5, 6}[0])), Size: 24}}, producer)
		require.NoError(t, producer.Record(e))
		assert.False(t, ready(t, imported))
		copied, err := imported.CopyTo(background, gpu)
		require.NoError(t, err)
		assert.False(t, ready(t, copied))
		open()
		want := fromJSON(t, arrow.PrimitiveTypes.Int64, `[4,5,6]`)
		sameOnHost(t, want, copied)
		sameOnHost(t, want, imported)
		copied.Release()
		imported.Release()
		require.NoError(t, gpu.Flush(background))
	})
}

// NumBytes and CountNulls whose caller gave up waiting still write to page-locked memory, which is not reused before.
func TestGPUAbandonedReadsKeepTheirMemory(t *testing.T) {
	checkLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	for name, read := range map[string]func(*cdevice.Array, context.Context) (int64, error){
		"NumBytes": (*cdevice.Array).NumBytes, "CountNulls": (*cdevice.Array).CountNulls,
	} {
		producer := newStream(t, gpu)
		open := m.Hold(t, producer)
		a := pendingText(t, gpu, producer)
		before := gpu.ReadStats().Pinned.Live
		underWay := func() bool { return gpu.ReadStats().Pinned.Live > before }
		ctx, cancel := context.WithCancel(background)
		wait := make(chan error)
		go func() {
			_, err := read(a, ctx)
			wait <- err
		}()
		within.Eventually(t, "the memory of the read", underWay)
		cancel()
		require.ErrorIs(t, <-wait, context.Canceled, name)
		assert.True(t, underWay(), "%s: it is written to later", name)
		open()
		require.NoError(t, gpu.Flush(background))
		assert.False(t, underWay(), name)
		a.Release()
		require.NoError(t, gpu.Flush(background))
	}
}
