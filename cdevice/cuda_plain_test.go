package cdevice_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Copies between plain memory and a GPU: nothing of them waits in the driver.

// sizes of copies: of one piece, and of more pieces than may be pending on a stream.
var plainSizes = map[string]int{"small": 8000, "large": 128 * mib}

// plainCopies are copies of an array of numbers on a stream.
func plainCopies(column arrow.Array, there *cdevice.Array, gpu device.Device, s device.Stream) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"to the device": func(ctx context.Context) error {
			a, err := copyArray(ctx, column, gpu, cdevice.WithStream(s))
			if err == nil {
				a.Release()
			}
			return err
		},
		"to the host": func(ctx context.Context) error {
			back, err := there.CopyToHost(ctx, nil, cdevice.WithStream(s))
			if err == nil {
				back.Release()
			}
			return err
		},
	}
}

// A copy behind a stream that is stuck ends with its context; a small one to the device is enqueued at once.
func TestGPUContextsEndPlainCopiesBehindAStuckStream(t *testing.T) {
	checkLeaks(t)
	m := cudatest.One(t, cudasim.Options{NoPoison: true})
	gpu := m.GPUs[0]
	for size, bytes := range plainSizes {
		column := numbers(t, bytes)
		there, err := copyArray(background, column, gpu)
		require.NoError(t, err)
		require.NoError(t, there.Synchronize(background))
		s := newStream(t, gpu)
		open := m.Hold(t, s)
		for name, do := range plainCopies(column, there, gpu, s) {
			if size == "small" && name == "to the device" {
				within.Seconds(t, "a small copy to the device", func() error { return do(background) })
				continue
			}
			within.Context(t, size+" "+name, do)
		}
		open()
		sameOnHost(t, column, there)
		there.Release()
	}
	within.Seconds(t, "Flush", func() error { return gpu.Flush(background) })
	within.Eventually(t, "nothing is kept", func() bool { return gpu.ReadStats().Device.Live+gpu.ReadStats().Pinned.Live == 0 })
}

// stuckAfter is a context that is asked for its error between the pieces of a copy. When it was asked so often, it holds
// the stream of the copy, and ends some time later.
type stuckAfter struct {
	context.Context
	left atomic.Int32
	hold func()
}

func (c *stuckAfter) Err() error {
	if c.left.Add(-1) == 0 {
		c.hold()
	}
	return c.Context.Err()
}

// So does a copy whose stream becomes stuck between two of its pieces.
func TestGPUContextsEndPlainCopiesWhoseStreamBecomesStuck(t *testing.T) {
	checkLeaks(t)
	const pieces = 100 // of 256 KiB, before the stream is stuck
	m := cudatest.One(t, cudasim.Options{NoPoison: true})
	gpu := m.GPUs[0]
	column := numbers(t, plainSizes["large"])
	there, err := copyArray(background, column, gpu)
	require.NoError(t, err)
	require.NoError(t, there.Synchronize(background))
	for name := range plainCopies(column, there, gpu, nil) {
		s := newStream(t, gpu)
		ended, cancel := context.WithCancel(background)
		var open func()
		var end atomic.Pointer[time.Time]
		ctx := &stuckAfter{Context: ended, hold: func() {
			var err error
			open, err = cudatest.TryHold(s)
			assert.NoError(t, err)
			time.AfterFunc(20*time.Millisecond, func() {
				now := time.Now()
				end.Store(&now)
				cancel()
			})
		}}
		ctx.left.Store(pieces)
		pace := within.MeasurePace()
		began := time.Now()
		within.Seconds(t, name, func() error {
			assert.ErrorIs(t, plainCopies(column, there, gpu, s)[name](ctx), context.Canceled)
			return nil
		})
		if assert.NotNil(t, end.Load(), "%s: it did not wait for the stream", name) {
			now := time.Now()
			assert.Less(t, now.Sub(*end.Load()), 100*time.Millisecond+pace.Allowance(began, now), name)
		}
		pace.Stop()
		if open != nil {
			open()
		}
		cancel()
	}
	sameOnHost(t, column, there)
	there.Release()
	within.Seconds(t, "Flush", func() error { return gpu.Flush(background) })
	within.Eventually(t, "nothing is kept", func() bool { return gpu.ReadStats().Device.Live+gpu.ReadStats().Pinned.Live == 0 })
}

// Copies leave a graph valid that another thread captures meanwhile.
func TestGPUPlainCopiesDisturbNoCapture(t *testing.T) {
	checkLeaks(t)
	m := cudatest.One(t, cudasim.Options{NoPoison: true})
	gpu := m.GPUs[0]
	end := m.Capture(t, newStream(t, gpu), cudatest.Global)
	for size, bytes := range plainSizes {
		column := numbers(t, bytes)
		within.Seconds(t, size, func() error {
			there, err := copyArray(background, column, gpu)
			if err != nil {
				return err
			}
			defer there.Release()
			back, err := there.CopyToHost(background, nil)
			if err != nil {
				return err
			}
			defer back.Release()
			assert.True(t, array.Equal(column, back))
			return nil
		})
	}
	assert.NoError(t, end(), "the capture is valid")
	within.Seconds(t, "Flush", func() error { return gpu.Flush(background) })
}
