package cdevice_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

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
