package cdevice_test

import (
	"testing"

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
)

// records are so many different batches, and an arrow-go reader over them; released at the
// end of the test.
func records(t *testing.T, n int) ([]arrow.RecordBatch, array.RecordReader) {
	t.Helper()
	var all []arrow.RecordBatch
	for i := range n {
		rec := columnsOf(memory.DefaultAllocator, 3, 10+i, true)
		t.Cleanup(rec.Release)
		all = append(all, rec)
	}
	rdr, err := array.NewRecordReader(all[0].Schema(), all)
	require.NoError(t, err)
	t.Cleanup(rdr.Release)
	return all, rdr
}

// An arrow-go reader goes to the device, through C, and back, by every kind of memory.
func TestGPUStreamRoundTrip(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		for _, dev := range m.Devices(t) {
			want, rdr := records(t, 5)
			if !dev.CPUAccessible() {
				assert.ErrorIs(t, second(cdevice.WrapRecordReader(rdr, dev)), device.ErrNotSupported, "arrow-go's batches cannot live there")
			}
			r, err := copyReader(background, rdr, dev)
			require.NoError(t, err)
			assert.Equal(t, dev.ID().Type, r.DeviceType())
			s := export(t, r)
			assert.EqualValues(t, dev.ID().Type, s.DeviceType)
			in, err := cdevice.ImportRecordReader(s, cdevice.WithDevice(dev))
			require.NoError(t, err)
			in.Prefetch(1)
			h := in.HostReader(background, nil)
			in.Release()
			for _, rec := range want {
				require.True(t, h.Next(), "%v", h.Err())
				assert.True(t, array.RecordEqual(rec, h.RecordBatch()))
			}
			assert.False(t, h.Next())
			require.NoError(t, h.Err())
			h.Release()
			streamsEnd(t)
		}
	})
}

// Batches are exported with their events: no step waits, even if the work takes long.
func TestGPUStreamOfPendingBatches(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		want, rdr := records(t, 3)
		producer := newStream(t, gpu)
		open := m.Hold(t, producer)
		r, err := copyReader(background, rdr, gpu, cdevice.WithStream(producer))
		require.NoError(t, err)
		in, err := cdevice.ImportRecordReader(export(t, r), cdevice.WithDevice(gpu))
		require.NoError(t, err)
		var batches []*cdevice.RecordBatch
		for b, err := range in.All() {
			require.NoError(t, err)
			assert.False(t, ready(t, b))
			b.Retain()
			batches = append(batches, b)
		}
		open()
		for i, b := range batches {
			rec, err := b.CopyToHost(background, nil)
			require.NoError(t, err)
			assert.True(t, array.RecordEqual(want[i], rec))
			rec.Release()
			b.Release()
		}
		release(t, in)
	})
}

// While the consumer holds one batch, the next one's copy is enqueued, and no other.
func TestGPUStreamCopiesTheNextBatch(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	_, rdr := records(t, 4)
	r, err := copyReader(background, rdr, gpu)
	require.NoError(t, err)
	copies := func() int { return m.Sim.Report().Calls["cuMemcpyAsync"] }
	m.Sim.ResetCounters()
	require.True(t, r.Next())
	within.Eventually(t, "the second copy", func() bool { return copies() == 2 })
	require.True(t, r.Next())
	within.Eventually(t, "the third copy", func() bool { return copies() == 3 })
	assert.Zero(t, m.Sim.Report().Calls["cuEventSynchronize"])
	assert.Zero(t, m.Sim.Report().Calls["cuStreamSynchronize"])
	release(t, r)
}
