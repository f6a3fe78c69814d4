package cdevice_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
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

// Which streams the two sides use, and which threads.

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

// makeWait makes work on s wait for the work that other streams have now.
func makeWait(t *testing.T, gpu device.Device, s device.Stream, others ...device.Stream) {
	t.Helper()
	for _, other := range others {
		e, err := gpu.NewEvent()
		require.NoError(t, err)
		require.NoError(t, other.Record(e))
		require.NoError(t, s.WaitEvent(e))
		require.NoError(t, e.Close())
	}
}

// Several streams fill one batch; its one event covers them all, in any order of completion.
func TestGPUProducerStreamsAreJoined(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		for _, joined := range []string{"on a third", "on the second"} {
			for _, first := range []int{0, 1} {
				t.Run(fmt.Sprintf("%s, number %d ends first", joined, first), func(t *testing.T) {
					a, b := newStream(t, gpu), newStream(t, gpu)
					open := []func(){m.Hold(t, a), m.Hold(t, b)}
					batch, want := filledByTwo(t, gpu, a, b)
					defer want.Release()
					last := b
					if joined == "on a third" {
						last = newStream(t, gpu)
						makeWait(t, gpu, last, a, b)
					} else {
						makeWait(t, gpu, last, a)
					}
					imported := sent(t, made(t, batch)(batch.RecordEvent(last)), gpu)
					copied, err := imported.CopyTo(background, gpu)
					require.NoError(t, err)
					assert.False(t, ready(t, imported))
					open[first]()
					if first == 0 { // the second may wait for the first
						require.NoError(t, a.Synchronize(background))
					}
					assert.False(t, ready(t, imported), "the other one is held")
					assert.False(t, ready(t, copied))
					open[1-first]()
					sameBatchOnHost(t, want, copied)
					sameBatchOnHost(t, want, imported)
					copied.Release()
					imported.Release()
					require.NoError(t, gpu.Flush(background))
				})
			}
		}
	})
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

// A copy whose caller gave up waiting still writes to page-locked memory: the cache reuses that
// memory only after the copy.
func TestGPUAbandonedReadsKeepTheirMemory(t *testing.T) {
	checkLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	for name, row := range map[string]struct {
		size int64 // of the page-locked memory
		read func(producer device.Stream) (read func(context.Context) error, release func())
	}{
		"sizes": {64, func(producer device.Stream) (func(context.Context) error, func()) {
			a := pendingText(t, gpu, producer)
			return func(ctx context.Context) error { _, err := a.NumBytes(ctx); return err }, a.Release
		}},
		"nulls": {64, func(producer device.Stream) (func(context.Context) error, func()) {
			a := pendingText(t, gpu, producer)
			return func(ctx context.Context) error { _, err := a.CountNulls(ctx); return err }, a.Release
		}},
		"data": {8000, func(producer device.Stream) (func(context.Context) error, func()) {
			b, want := filledByTwo(t, gpu, producer, producer)
			want.Release()
			b = sent(t, made(t, b)(b.RecordEvent(producer)), gpu)
			return func(ctx context.Context) error { _, err := b.CopyToHost(ctx, nil); return err }, b.Release
		}},
	} {
		t.Run(name, func(t *testing.T) {
			producer := newStream(t, gpu)
			open := m.Hold(t, producer)
			read, release := row.read(producer)
			allocate := func() device.Memory {
				host, err := gpu.AllocateHost(background, row.size)
				require.NoError(t, err)
				return host
			}
			next := allocate()
			given := next.Ptr() // the memory of the next allocation
			require.NoError(t, next.FreeAfter(nil))

			before := gpu.ReadStats().Pinned.Live
			ctx, cancel := context.WithCancel(background)
			ended := make(chan error)
			go func() { ended <- read(ctx) }()
			within.Eventually(t, "the memory of the read", func() bool { return gpu.ReadStats().Pinned.Live > before })
			cancel()
			require.ErrorIs(t, <-ended, context.Canceled)
			other := allocate()
			assert.NotEqual(t, given, other.Ptr(), "it will be written to")
			text := abi.Slice[byte](uintptr(other.Ptr()), int(row.size))
			for i := range text {
				text[i] = 0xaa
			}
			open()
			require.NoError(t, gpu.Flush(background))
			assert.Equal(t, int(row.size), bytes.Count(text, []byte{0xaa}))
			// It is among the next allocations; the memory that filled the columns came back with it.
			held := []device.Memory{other}
			isGiven := func(m device.Memory) bool { return m.Ptr() == given }
			for range 8 {
				held = append(held, allocate())
			}
			assert.True(t, slices.ContainsFunc(held, isGiven), "it is given back")
			for _, host := range held {
				require.NoError(t, host.FreeAfter(nil))
			}
			release()
			require.NoError(t, gpu.Flush(background))
		})
	}
}
