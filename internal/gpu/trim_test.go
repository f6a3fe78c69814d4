package gpu_test

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Trim frees staging memory, after waiting for its copies.
func TestTrimWaitsForWhatIsStaged(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Lazy: true})
	gpu := m.GPUs[0]
	s, own := memoryOn(t, gpu, 1000)
	src := make([]byte, 1000)
	defer runtime.KeepAlive(src)
	e, err := gpu.Upload(background, []device.Range{{Dst: own.Ptr(), Src: cudatest.Pointer(src), Size: 1000}}, s)
	require.NoError(t, err)
	require.NoError(t, e.Close())
	assert.NotZero(t, gpu.ReadStats().Pinned.Live)
	require.NoError(t, gpu.Trim(background))
	assert.Zero(t, gpu.ReadStats().Pinned.Live)
	require.NoError(t, own.Free(s))
	require.NoError(t, s.Close())
}

// Trim waits for memory that its functions free in stream order, before it trims the pool.
func TestTrimWaitsForWhatItFrees(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Lazy: true})
	gpu := m.GPUs[0]
	s, own := memoryOn(t, gpu, 1000)
	cached := true
	heapOf(gpu).OnTrim(func() {
		if cached {
			cached = false
			assert.NoError(t, own.Free(s))
		}
	})
	require.NoError(t, gpu.Trim(background))
	assert.False(t, cached)
	done, err := s.(*cudaalloc.Stream).Query()
	require.NoError(t, err)
	assert.True(t, done)
	require.NoError(t, s.Close())
}

// Functions of AfterWork may give memory back to caches: Trim waits for them before it empties the
// caches. The function takes long enough to show a Trim that does not wait.
func TestTrimComesAfterWhatIsPutOff(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem, err := cudaalloc.NewManagedAllocator(gpu)
	require.NoError(t, err)
	b := mem.Allocate(1000)
	trimmed, begun := make(chan struct{}), make(chan struct{})
	heapOf(gpu).OnTrim(sync.OnceFunc(func() { close(trimmed) }))
	gpu.AfterWork(func() {
		close(begun)
		select {
		case <-trimmed:
			t.Error("caches were emptied first")
		case <-time.After(100 * time.Millisecond):
		}
		mem.Free(b)
	})
	<-begun
	require.NoError(t, gpu.Trim(background))
	held := mem.ReadStats().Held
	assert.Zero(t, held)
	<-trimmed
}

func TestTrimGivesThePoolsMemoryBack(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	require.NoError(t, m.GPUs[0].Trim(background))
	assert.Equal(t, 1, m.Sim.Calls("cuMemPoolTrimTo"))
	assert.Equal(t, 1, m.Sim.Calls("cuMemPoolSetAttribute"), "the pool keeps what is freed")
}
