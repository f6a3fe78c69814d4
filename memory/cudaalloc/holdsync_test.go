package cudaalloc_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/cudatest"
)

// HoldSynchronization holds when it returns: a synchronisation that was about to begin does
// not come after it, into a capture.
func TestHoldSynchronizationHoldsWhenItReturns(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	var stop atomic.Bool
	var others sync.WaitGroup
	for range 64 { // keep the driver busy, and the context about to be synchronised
		others.Go(func() {
			for !stop.Load() {
				done := make(chan struct{})
				gpu.AfterWork(func() { close(done) })
				<-done
				for range 100 {
					_, err := gpu.Legacy().Query()
					assert.NoError(t, err)
				}
			}
		})
	}
	for i := range 500 {
		time.Sleep(time.Duration(i%10) * 200 * time.Microsecond)
		s, err := gpu.NewStream()
		require.NoError(t, err)
		release := gpu.HoldSynchronization()
		end, err := m.TryCapture(s, cudatest.Relaxed)
		if err == nil {
			err = end()
		}
		release()
		if !assert.NoError(t, err, "capture %d", i) {
			break
		}
		require.NoError(t, s.Close())
	}
	stop.Store(true)
	others.Wait()
}
