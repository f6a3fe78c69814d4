package cudaalloc_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// No call leaves a context current on its thread, on one that had none and on one
// that had another.
func TestThreadsAreLeftUnchanged(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		gpu := m.GPUs[0]
		assert.Zero(t, cudaalloc.Current(gpu))
		s, err := gpu.NewStream()
		assert.NoError(t, err)
		mem, err := gpu.Allocate(background, 100, s)
		assert.NoError(t, err)
		assert.NoError(t, gpu.Memset(mem.Ptr(), 1, 100, s))
		_, err = gpu.Allocate(background, 1<<50, s)
		assert.Error(t, err)
		assert.NoError(t, mem.Free(s))
		assert.NoError(t, s.Synchronize(background))
		assert.NoError(t, s.Close())
		assert.Zero(t, cudaalloc.Current(gpu))

		m.Sim.Fail("cuCtxSetCurrent", 2, unknownError) // the one that restores
		_, _, err = gpu.MemoryInfo()
		assert.NoError(t, err, "what was asked for has been done")
		_, met := m.Sim.Failed()
		assert.True(t, met)
		assert.Zero(t, cudaalloc.Current(gpu), "restoring is tried again")
	})
	wg.Wait()
}
