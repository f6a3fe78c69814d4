package cdevice_test

import (
	"errors"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// roundTrip copies rec to the GPU, and sends it through C with an event of its own.
func roundTrip(rec arrow.RecordBatch, gpu *cudaalloc.Device) (err error) {
	batch, err := cdevice.CopyToDevice(background, rec, gpu)
	if err != nil {
		return err
	}
	s, err := gpu.NewStream()
	if err != nil {
		batch.Release()
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	recorded, err := batch.WithEvent(s)
	batch.Release()
	if err != nil {
		return err
	}
	out := garbageArray()
	err = exportMade(out, nil)(recorded, nil)
	if err != nil {
		return err
	}
	imported, err := cdevice.ImportRecordBatchWithSchema(out, rec.Schema(), cdevice.WithDevice(gpu))
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
	return imported.Synchronize(background)
}

// Calls whose failure is made good: see cudaalloc's tests.
var madeGood = []string{
	"cuCtxSynchronize", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuMemFree", "cuMemFreeHost", "cuMemFreeAsync", "cuEventQuery", "cuEventDestroy",
	"cuStreamIsCapturing", "cuStreamDestroy", "cuCtxGetId", "cuDevicePrimaryCtxGetState",
	"cuThreadExchangeStreamCaptureMode", // there is no capture
	"cuStreamWaitEvent",                 // before memory is freed: then it is freed after all work
}

// Each call of the driver in a round trip is made to fail (see [cudatest.Faults]): an error
// names it, nothing is lost, and the next round trip works. Copies are copyplan's.
func TestEachCallOfARoundTripFails(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	for m.Sim.Report().Live.Events > 0 { // cached events
		require.NoError(t, gpu.Trim(background))
	}
	rec := columnsOf(memory.DefaultAllocator, 3, 20, true)
	defer rec.Release()
	before := m.Sim.Report().Live
	trip := func() error { // and cached memory is freed: twice, since the first pass adds to the caches
		return errors.Join(roundTrip(rec, gpu), gpu.Trim(background), gpu.Trim(background))
	}
	m.Sim.ResetCounters()
	require.NoError(t, trip())
	m.Settle(t, before)
	called, failed := map[string]bool{}, map[string]bool{}
	for _, fault := range cudatest.Faults(m.Sim.Report().Calls) {
		called[fault.Function] = true
		var err error
		if m.Meets(t, "a round trip", fault, 999, func() { err = trip() }) {
			failed[fault.Function] = true
			if err != nil {
				require.ErrorContains(t, err, fault.Function+"(", fault)
			} else {
				require.Contains(t, madeGood, fault.Function, fault)
			}
		}
		m.Settle(t, before)
	}
	delete(called, "cuEventSynchronize") // a wait that is over soon only asks
	delete(failed, "cuEventSynchronize")
	require.Equal(t, called, failed, "each function failed")
	require.Contains(t, failed, "cuEventRecord")
}
