package cudaalloc_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// inUse is a GPU with pending work, and its live objects.
type inUse struct {
	gpu                *cudaalloc.Device
	s, closed          device.Stream
	e                  device.Event
	own, host, managed device.Memory
}

func use(t *testing.T, gpu *cudaalloc.Device) inUse {
	stream := func() device.Stream {
		s, err := gpu.NewStream()
		require.NoError(t, err)
		return s
	}
	u := inUse{gpu: gpu, s: stream(), closed: stream()}
	memory := func(d *cudaalloc.Device) device.Memory {
		mem, err := d.Allocate(background, 4096, u.s)
		require.NoError(t, err)
		return mem
	}
	u.own, u.host, u.managed = memory(gpu), memory(gpu.Pinned()), memory(gpu.Managed())
	var err error
	u.e, err = gpu.NewEvent()
	require.NoError(t, err)
	require.True(t, gpu.PageLocked(u.host.Ptr(), 4096))
	for range 10 {
		require.NoError(t, gpu.Memset(u.own.Ptr(), 1, 4096, u.s))
	}
	require.NoError(t, u.s.Record(u.e))
	return u
}

// ended tests that each use is an error, and none reaches the driver: the addresses and
// handles may be those of other things by now.
func (u inUse) ended(t *testing.T, m *cudatest.Machine) {
	m.Sim.ResetCounters()
	for what, err := range map[string]error{
		"Allocate":          errorOf(u.gpu.Allocate(background, 64, u.s)),
		"Allocate managed":  errorOf(u.gpu.Managed().Allocate(background, 64, nil)),
		"NewStream":         errorOf(u.gpu.NewStream()),
		"NewEvent":          errorOf(u.gpu.NewEvent()),
		"Memset":            u.gpu.Memset(u.own.Ptr(), 1, 4096, u.s),
		"Record":            u.s.Record(u.e),
		"Synchronize":       u.s.Synchronize(background),
		"Event.Synchronize": u.e.Synchronize(background),
		"Event.Query":       errorOf(u.e.Query()),
		"Close":             u.closed.Close(),
	} {
		assert.ErrorIs(t, err, cudaalloc.ContextIsDestroyed, what)
	}
	_, _, err := u.gpu.MemoryInfo()
	assert.ErrorIs(t, err, cudaalloc.ContextIsDestroyed)
	for _, memory := range []device.Memory{u.own, u.host, u.managed} {
		_ = memory.Free(u.s) // an error now, or of the background
	}
	called := make(chan struct{})
	u.gpu.AfterWork(func() { close(called) })
	within.Seconds(t, "what waits for work that ended with the context", func() error { <-called; return nil })
	within.Eventually(t, "nothing waits", func() bool { return u.gpu.ReadStats().Waiting == 0 })
	for _, function := range []string{
		"cuMemFree", "cuMemFreeHost", "cuMemFreeAsync", "cuStreamDestroy", "cuEventDestroy", "cuEventRecord", "cuCtxSetCurrent", "cuCtxSynchronize",
	} {
		assert.Zero(t, m.Sim.Calls(function), function)
	}
}

func errorOf[V any](_ V, err error) error { return err }

// works tests that a GPU is usable.
func works(t *testing.T, gpu *cudaalloc.Device) {
	s, err := gpu.NewStream()
	require.NoError(t, err)
	own, err := gpu.Allocate(background, 4096, s)
	require.NoError(t, err)
	host, err := gpu.Pinned().Allocate(background, 4096, s)
	require.NoError(t, err)
	require.NoError(t, gpu.Memset(own.Ptr(), 7, 4096, s))
	require.NoError(t, gpu.Copy(cudatest.Range(host.Ptr(), own.Ptr(), 4096), s))
	require.NoError(t, s.Synchronize(background))
	assert.Equal(t, bytes.Repeat([]byte{7}, 4096), cudatest.At(host.Ptr(), 4096))
	require.NoError(t, own.Free(s))
	require.NoError(t, host.Free(s))
	require.NoError(t, s.Close())
	require.NoError(t, gpu.Trim(background)) // in the background it would be counted
}

// Another part of the program resets the primary context: the GPU is opened anew.
func TestOpenAfterAReset(t *testing.T) {
	withoutIDs := []string{"cuCtxGetId"}
	for name, o := range map[string]cudasim.Options{
		"new handle":                      {},
		"stable handle":                   {StablePrimary: true},
		"stable handle, without pools":    {StablePrimary: true, NoPools: true},
		"new handle, without ids":         {Missing: withoutIDs},
		"stable handle, without ids":      {StablePrimary: true, Missing: withoutIDs},
		"stable handle, without anything": {StablePrimary: true, Missing: []string{"cuCtxGetId", "cuDevicePrimaryCtxGetState"}},
	} {
		for _, reactivated := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", active again"}[reactivated], func(t *testing.T) {
				o.Delay = 200 * time.Microsecond
				m := cudatest.Simulated(t, o)
				before := use(t, m.GPUs[0])
				require.False(t, m.GPUs[0].Gone())
				m.ResetPrimary(t, 0)
				if reactivated { // by a library that does not know of this one
					theirs := m.Retain(t, 0)
					p, err := theirs.NewMemory(64)
					require.NoError(t, err)
					t.Cleanup(func() { assert.NoError(t, theirs.FreeMemory(p)) })
				}
				again, err := cudaalloc.Open(0, m.Driver())
				require.NoError(t, err)
				require.NotSame(t, m.GPUs[0], again)
				assert.True(t, m.GPUs[0].Gone())
				assert.Zero(t, again.ReadStats())
				assert.False(t, again.PageLocked(before.host.Ptr(), 4096))
				same, err := cudaalloc.Open(0, m.Driver())
				require.NoError(t, err)
				assert.Same(t, again, same)
				works(t, again)
				before.ended(t, m)
				works(t, again)
			})
		}
	}
}

// A reset may come again and again.
func TestOpenAfterManyResets(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{StablePrimary: true, Devices: 2})
	gpu := m.GPUs[1]
	for range 5 {
		m.ResetPrimary(t, 1)
		again, err := cudaalloc.Open(1, m.Driver())
		require.NoError(t, err)
		require.NotSame(t, gpu, again)
		works(t, again)
		works(t, m.GPUs[0])
		gpu = again
	}
	assert.Equal(t, []int{1, 1}, m.Sim.Report().Live.PrimaryReferences)
}

// Where the driver cannot open the GPU after a reset, Open fails until it can; an answer that
// fails is no reset.
func TestOpenAfterAResetFails(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	for _, function := range []string{"cuDevicePrimaryCtxGetState", "cuCtxGetId"} {
		m.Sim.Fail(function, 1, unknownError)
		same, err := cudaalloc.Open(0, m.Driver())
		require.NoError(t, err)
		assert.Same(t, m.GPUs[0], same)
		_, met := m.Sim.Failed()
		assert.True(t, met)
	}
	m.ResetPrimary(t, 0)
	for _, function := range []string{"cuDevicePrimaryCtxRetain", "cuCtxGetId", "cuStreamCreateWithPriority", "cuMemPoolCreate"} {
		m.Sim.Fail(function, 1, unknownError)
		_, err := cudaalloc.Open(0, m.Driver())
		assert.ErrorContains(t, err, function)
	}
	m.Sim.Fail("cuDevicePrimaryCtxRelease", 1, unknownError)
	again, err := cudaalloc.Open(0, m.Driver())
	require.NoError(t, err)
	require.NotSame(t, m.GPUs[0], again)
	works(t, again)
	assert.Equal(t, []int{1}, m.Sim.Report().Live.PrimaryReferences)
}

// The driver calls of Open for a GPU that is open and was not reset.
func TestOpenAgainCalls(t *testing.T) {
	for name, o := range map[string]cudasim.Options{"ids": {}, "no ids": {Missing: []string{"cuCtxGetId"}}} {
		t.Run(name, func(t *testing.T) {
			m := cudatest.Simulated(t, o)
			m.Sim.ResetCounters()
			_, err := cudaalloc.Open(0, m.Driver())
			require.NoError(t, err)
			calls := m.Sim.Report().Calls
			delete(calls, "cuCtxGetCurrent")
			delete(calls, "cuCtxSetCurrent")
			delete(calls, "cuThreadExchangeStreamCaptureMode")
			asked := map[string]string{"ids": "cuCtxGetId", "no ids": "cuStreamQuery"}[name]
			assert.Equal(t, map[string]int{"cuDeviceGetCount": 1, "cuDevicePrimaryCtxGetState": 1, asked: 1}, calls)
		})
	}
}
