package cdevice_test

import (
	"context"
	"io"
	"testing"
	"time"

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
	within.Limit(t, bounded, "Next", func() error { assert.False(t, c.Next()); return nil })
	assert.ErrorIs(t, c.Err(), context.DeadlineExceeded)
	close(answer)
	require.NoError(t, c.Close(background))
	c.Release()
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
