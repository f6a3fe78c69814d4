package cdevice_test

import (
	"context"
	"io"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

func TestCoreDeviceHasNoOptionalInterfaces(t *testing.T) {
	var d any = coreDevice{device.CPUDevice()}
	_, stager := d.(device.Stager)
	_, memsetter := d.(device.Memsetter)
	_, copyStreamer := d.(device.CopyStreamer)
	_, prober := d.(device.Prober)
	assert.False(t, stager || memsetter || copyStreamer || prober)
}

// Every type, however it is presented, and parts of it: host -> device -> C -> device -> host.
func TestGPURoundTripThroughACoreDevice(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := coreDevice{m.GPUs[0]}
	for _, c := range cases.All() {
		for _, v := range cases.Variants {
			t.Run(c.Name+"/"+string(v), func(t *testing.T) {
				want, err := c.Array(memory.DefaultAllocator, v)
				require.NoError(t, err)
				defer want.Release()
				there, err := copyArray(background, want, gpu)
				require.NoError(t, err)
				defer there.Release()
				sameOnHost(t, want, there)
				back := throughC(t, there, cdevice.WithDevice(gpu))
				defer back.Release()
				sameOnHost(t, want, back)
				again, err := back.CopyTo(background, gpu)
				require.NoError(t, err)
				defer again.Release()
				sameOnHost(t, want, again)
				if n := int64(want.Len()); n > 3 {
					part, err := there.Slice(1, n-1)
					require.NoError(t, err)
					defer part.Release()
					wantPart := array.NewSlice(want, 1, n-1)
					defer wantPart.Release()
					sameOnHost(t, wantPart, part)
				}
			})
		}
	}
}

// A copy that its context ends leaves nothing behind.
func TestGPUCopyFromACoreDeviceIsCancelled(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := coreDevice{m.GPUs[0]}
	rec := columnsOf(memory.DefaultAllocator, 3, 1000, true)
	defer rec.Release()
	b, err := cdevice.CopyToDevice(background, rec, gpu)
	require.NoError(t, err)
	defer b.Release()
	ctx, cancel := context.WithCancel(background)
	cancel()
	_, err = b.CopyToHost(ctx, nil)
	assert.ErrorIs(t, err, context.Canceled)
	_, err = b.CopyTo(ctx, gpu)
	assert.ErrorIs(t, err, context.Canceled)
}

// otherBackend is a device whose memory, according to it, only its own backend can access.
type otherBackend struct{ device.Device }

func (otherBackend) ID() device.ID       { return device.ID{Type: device.ExtDev, Ordinal: 5} }
func (otherBackend) CPUAccessible() bool { return false }

// A backend is given no address of another one's memory: the copy goes over the CPU.
func TestGPUCopyToAnotherBackend(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu, other := m.GPUs[0], otherBackend{device.CPUDevice()}
	rec := columnsOf(memory.DefaultAllocator, 2, 100, true)
	defer rec.Release()
	there, err := cdevice.CopyToDevice(background, rec, gpu) // its event is pending
	require.NoError(t, err)
	defer there.Release()
	b, err := there.CopyTo(background, other)
	require.NoError(t, err)
	assert.Equal(t, other.ID(), b.DeviceID())
	sameBatchOnHost(t, rec, b)
	back, err := b.CopyTo(background, gpu)
	require.NoError(t, err)
	sameBatchOnHost(t, rec, back)
	back.Release()

	column := there.Column(0)
	a, err := column.CopyTo(background, other)
	require.NoError(t, err)
	assert.Equal(t, column.Field(), a.Field())
	sameOnHost(t, rec.Column(0), a)
	a.Release()
	column.Release()
	b.Release()
	require.NoError(t, gpu.Flush(background))
}

// Next of a reader of copies returns when its context ends, while the source blocks.
func TestContextEndsAReaderOfCopies(t *testing.T) {
	checkLeaks(t)
	answer := make(chan struct{})
	r, err := readerFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) { <-answer; return nil, io.EOF }, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	c := made(t, r)(r.CopyTo(ctx, device.CPUDevice()))
	c.Prefetch(1)
	start := time.Now()
	within.Limit(t, bounded, "Next", func() error { assert.False(t, c.Next()); return nil })
	assert.Less(t, time.Since(start), 2*time.Second)
	assert.ErrorIs(t, c.Err(), context.DeadlineExceeded)
	close(answer)
	require.NoError(t, c.Close(background))
	c.Release()
}

// Each step of a round trip runs on another goroutine and thread: no call of the driver may rely on
// the thread state of the one before it.
func TestGPURoundTripsMigrate(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		rec := columnsOf(memory.DefaultAllocator, 2, 20, true)
		defer rec.Release()
		gpuOf := func(i int) *cudaalloc.Device { return m.GPUs[i%len(m.GPUs)] }
		steps := []func(i int, r *trip) error{
			func(i int, r *trip) (err error) { r.stream, err = gpuOf(i).NewStream(); return },
			func(i int, r *trip) (err error) {
				r.batch, err = cdevice.CopyToDevice(background, rec, gpuOf(i), cdevice.WithStream(r.stream))
				return
			},
			func(i int, r *trip) error {
				r.out, r.schema = garbageArray(), garbageSchema()
				return exportMade(r.out, r.schema)(r.batch.RecordEvent(r.stream))
			},
			func(i int, r *trip) error { r.batch.Release(); return nil },
			func(i int, r *trip) (err error) {
				r.arrived, err = cdevice.ImportRecordBatch(r.out, r.schema, cdevice.WithDevice(gpuOf(i)))
				return
			},
			func(i int, r *trip) error { return r.arrived.WaitOn(r.stream) },
			func(i int, r *trip) error { return r.arrived.UsedOn(r.stream) },
			func(i int, r *trip) (err error) {
				r.back, err = r.arrived.CopyToHost(background, nil, cdevice.WithStream(r.stream))
				return
			},
			func(i int, r *trip) error { r.arrived.Release(); return nil },
			func(i int, r *trip) error { return r.stream.Close() },
		}
		const trips = 60
		workers := max(2, runtime.GOMAXPROCS(0))
		queues := make([]chan int, len(steps)+1) // of trips, before each step and behind the last
		for i := range queues {
			queues[i] = make(chan int, trips)
		}
		var all [trips]trip
		var wg sync.WaitGroup
		for k, step := range steps {
			for w := range workers {
				wg.Go(func() {
					if w%2 == 0 {
						runtime.LockOSThread() // and never unlocked: the thread ends with it
					}
					for i := range queues[k] {
						if r := &all[i]; r.err == nil {
							r.err = step(i, r)
						}
						queues[k+1] <- i
					}
				})
			}
		}
		for i := range trips {
			queues[0] <- i
		}
		for range trips {
			r := &all[<-queues[len(steps)]]
			if assert.NoError(t, r.err) {
				assert.True(t, array.RecordEqual(rec, r.back))
				r.back.Release()
			}
		}
		for _, q := range queues {
			close(q)
		}
		wg.Wait()
	})
}

// Work of one GPU waits for a batch of another one, and reads it.
func TestGPUImportFromAnotherDevice(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		rec := columnsOf(memory.DefaultAllocator, 2, 1000, false)
		defer rec.Release()
		for _, here := range m.GPUs {
			for _, there := range m.GPUs {
				if here == there {
					continue
				}
				producer, consumer := newStream(t, there), newStream(t, here)
				open := m.Hold(t, producer)
				batch, err := cdevice.CopyToDevice(background, rec, there, cdevice.WithStream(producer))
				require.NoError(t, err)
				imported := sent(t, batch, there)
				require.NoError(t, imported.WaitOn(consumer))
				done, err := consumer.(*cudaalloc.Stream).Query()
				require.NoError(t, err)
				assert.False(t, done)
				copied, err := imported.CopyTo(background, here, cdevice.WithStream(consumer))
				require.NoError(t, err)
				assert.False(t, ready(t, copied))
				imported.Release()
				open()
				assert.Equal(t, here.ID(), copied.DeviceID())
				sameBatchOnHost(t, rec, copied)
				copied.Release()
			}
		}
	})
}
