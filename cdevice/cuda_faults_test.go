package cdevice_test

import (
	"errors"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// roundTrip sends rec to the GPU, through C, and a slice of it on the GPU and back.
func roundTrip(rec arrow.RecordBatch, gpu *cudaalloc.Device, mem memory.Allocator) error {
	batch, err := cdevice.CopyToDevice(background, rec, gpu)
	if err != nil {
		return err
	}
	out, schema := garbageArray(), garbageSchema()
	s, err := gpu.NewStream()
	if err == nil {
		err = exportMade(out, schema)(batch.RecordEvent(s))
		err = errors.Join(err, s.Close())
		if err != nil && out.Array.Release != 0xdead {
			cdevice.ReleaseStruct(out)
			cdevice.ReleaseStruct(schema)
		}
	}
	batch.Release()
	if err != nil {
		return err
	}
	imported, err := cdevice.ImportRecordBatch(out, schema, cdevice.WithDevice(gpu))
	if err != nil {
		return err
	}
	defer imported.Release()
	if err := imported.WaitOn(gpu.Legacy()); err != nil {
		return err
	}
	if _, err := imported.Ready(); err != nil {
		return err
	}
	part, err := imported.Slice(1, imported.NumRows())
	if err != nil {
		return err
	}
	defer part.Release()
	own, err := part.CopyTo(background, gpu)
	if err != nil {
		return err
	}
	defer own.Release()
	back, err := own.CopyToHost(background, mem)
	if err != nil {
		return err
	}
	defer back.Release()
	want := rec.NewSlice(1, rec.NumRows())
	defer want.Release()
	if !array.RecordEqual(want, back) {
		return errors.New("the data is not the same")
	}
	return nil
}

// Calls whose failure is made good: see cudaalloc's tests.
var madeGood = []string{
	"cuCtxSynchronize", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuMemFree", "cuMemFreeHost", "cuMemFreeAsync", "cuEventQuery", "cuEventDestroy",
	"cuStreamIsCapturing", "cuStreamDestroy", "cuCtxGetId", "cuDevicePrimaryCtxGetState",
	"cuThreadExchangeStreamCaptureMode", // there is no capture
	"cuStreamWaitEvent",                 // before memory is freed: then it is freed after all work
}

// Each call of the driver in a round trip is made to fail (see [cudatest.Faults]): an error
// names it, nothing is lost, and the next round trip works.
func TestEachCallOfARoundTripFails(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	pinned := cudatest.Pinned(t, gpu)
	for name, mem := range map[string]memory.Allocator{"plain": memory.NewGoAllocator(), "page-locked": pinned} {
		t.Run(name, func(t *testing.T) {
			for m.Sim.Report().Live.Events > 0 { // cached events
				require.NoError(t, gpu.Trim(background))
			}
			rec := columnsOf(mem, 3, 20, true)
			defer rec.Release()
			faults := eachCallFails(t, m, func() error { return roundTrip(rec, gpu, mem) })
			require.Greater(t, faults, 50)
			t.Logf("%d calls failed, one at a time", faults)
		})
	}
	pinned.Trim()
}

// eachCallFails makes each call of the driver in trip fail: an error names it, nothing is lost, and the next trip
// works. It returns the number of failures.
func eachCallFails(t *testing.T, m *cudatest.Machine, trip func() error) (faults int) {
	t.Helper()
	gpu := m.GPUs[0]
	before := m.Sim.Report().Live
	there := func() error { // and cached memory is freed: twice, since the first pass adds to the caches
		return errors.Join(trip(), gpu.Trim(background), gpu.Trim(background))
	}
	m.Sim.ResetCounters()
	require.NoError(t, there())
	m.Settle(t, before)
	called, failed := map[string]bool{}, map[string]bool{}
	for _, fault := range cudatest.Faults(m.Sim.Report().Calls) {
		called[fault.Function] = true
		var err error
		if m.Meets(t, "a round trip", fault, 999, func() { err = there() }) {
			faults++
			failed[fault.Function] = true
			if err != nil {
				require.ErrorContains(t, err, fault.Function+"(", fault)
			} else {
				require.Contains(t, madeGood, fault.Function, fault)
			}
		}
		m.Settle(t, before)
	}
	require.NoError(t, trip())
	require.Equal(t, called, failed, "each function failed")
	return faults
}

// 10,000 batches go to the GPU, through C, and back, and leave nothing.
func TestManyRoundTripsLeaveNothing(t *testing.T) {
	n := 10_000
	if testing.Short() {
		n = 1000
	}
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{NoPoison: true})
	gpu := m.GPUs[0]
	rec := columnsOf(memory.DefaultAllocator, 2, 5, true)
	defer rec.Release()
	for range n {
		batch, err := cdevice.CopyToDevice(background, rec, gpu)
		require.NoError(t, err)
		out := garbageArray()
		require.NoError(t, cdevice.ExportRecordBatch(batch, out, nil))
		imported, err := cdevice.ImportRecordBatchWithSchema(out, rec.Schema(), cdevice.WithDevice(gpu))
		require.NoError(t, err)
		batch.Release()
		require.NoError(t, imported.Synchronize(background))
		imported.Release()
	}
}
