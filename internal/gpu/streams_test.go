package gpu_test

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	core "github.com/arrowdevice/arrowdevice/internal/gpu"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// A stream that is being asked whether it is captured is ended afterwards.
func TestEndOfAStreamWaitsForQuestionsAboutIt(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	for range 2 {
		s, err := gpu.NewStream()
		require.NoError(t, err)
		asked := core.Of(gpu).Streams.Ask()
		m.Sim.ResetCounters()
		require.NoError(t, s.Close())
		assert.Zero(t, m.Sim.Calls("cuStreamDestroy"))
		asked()
		assert.Equal(t, 1, m.Sim.Calls("cuStreamDestroy"))
	}
}

// Work on a stream comes after an event that the stream waits for.
func TestStreamWaitsForAnEvent(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const size = 1000
	first, own := memoryOn(t, gpu, size)
	second, err := gpu.NewStream()
	require.NoError(t, err)
	require.NoError(t, gpu.Memset(own.Ptr(), 1, size, first))
	e, err := gpu.NewEvent()
	require.NoError(t, err)
	require.NoError(t, first.Record(e))
	require.NoError(t, second.WaitEvent(e))
	require.NoError(t, gpu.Memset(own.Ptr(), 2, size, second))
	require.NoError(t, own.Free(second))
	require.NoError(t, e.Close())
	require.NoError(t, first.Close())
	require.NoError(t, second.Close())
}

// A copy stream with pending work is not reused for the next copy.
func TestGPUCopyStreamThatWaitsIsNotGivenOut(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	first, err := gpu.CopyStream()
	require.NoError(t, err)
	open := m.Hold(t, first)
	require.NoError(t, first.Close())
	second, err := gpu.CopyStream()
	require.NoError(t, err)
	assert.NotEqual(t, first.Handle(), second.Handle())
	open()
	require.NoError(t, second.Close())
}

func TestGPUDefaultStreamsAndPriorities(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	const n = 1000
	mem, err := gpu.Allocate(background, n, nil)
	require.NoError(t, err)
	host, err := gpu.Pinned().Allocate(background, n, nil)
	require.NoError(t, err)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for i, s := range []*cudaalloc.Stream{gpu.Legacy(), gpu.PerThread()} {
		require.NoError(t, gpu.Memset(mem.Ptr(), byte(i+1), n, s))
		require.NoError(t, gpu.Copy([]device.Range{{Dst: host.Ptr(), Src: mem.Ptr(), Size: n}}, s))
		require.NoError(t, s.Synchronize(background))
		assert.Equal(t, n, bytes.Count(cudatest.At(host.Ptr(), n), []byte{byte(i + 1)}))
		require.NoError(t, s.Close())
		assert.Error(t, s.Synchronize(background), "closed, for this value")
	}
	require.NoError(t, mem.Free(nil))
	require.NoError(t, host.Free(nil))

	own, err := gpu.NewStream()
	require.NoError(t, err)
	open, err := hold(gpu.Legacy())
	require.NoError(t, err)
	assert.NoError(t, own.Synchronize(background), "own streams do not wait for the legacy stream")
	open()
	require.NoError(t, own.Close())

	least, greatest, err := gpu.Priorities()
	require.NoError(t, err)
	assert.LessOrEqual(t, greatest, least)
	for _, p := range []int{least, greatest, -100, 100} {
		s, err := gpu.NewStreamWithPriority(p)
		require.NoError(t, err)
		require.NoError(t, s.Synchronize(background))
		require.NoError(t, s.Close())
	}
}
