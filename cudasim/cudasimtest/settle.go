//go:build linux && cgo

package cudasimtest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

var (
	flushTime  = 30 * time.Second // for the work of all GPUs
	settleTime = 5 * time.Second  // for releases that other goroutines make
)

// settle ends what the test has left to the machine: faults, pauses, queued work, and releases that wait for it.
func settle(t testing.TB, sim *cudasim.Sim) {
	t.Helper()
	sim.Fail("", 0, 0)
	sim.Resume()
	sim.Drain()
	for deadline := time.Now().Add(settleTime); ; time.Sleep(time.Millisecond) {
		if err := flush(sim); err != nil {
			t.Errorf("cudasimtest: %v", err)
			return
		}
		if len(sim.Report().Leaks) == 0 || time.Now().After(deadline) {
			return
		}
	}
}

// flush frees what waits for work of the GPUs that are open. Work of one GPU may keep memory of another one, so
// it goes through them twice.
func flush(sim *cudasim.Sim) error {
	ctx, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	for range 2 {
		for ordinal, references := range sim.Report().Live.PrimaryReferences {
			if references == 0 {
				continue // it is not open
			}
			gpu, err := cudaalloc.Open(int64(ordinal), cudaalloc.WithDriver(sim.Path()))
			if err != nil {
				return fmt.Errorf("open GPU %d to free what waits for its work: %w", ordinal, err)
			}
			if err := gpu.Flush(ctx); err != nil {
				return fmt.Errorf("free what waits for work of GPU %d: %w", ordinal, err)
			}
		}
	}
	return nil
}
