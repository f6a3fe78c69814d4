package gpu_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// kind is one kind of memory of a simulated GPU.
type kind struct {
	*cudaalloc.Device
	m    *cudatest.Machine
	made string // the function of the driver that allocates it
}

// idle sets how many bytes of this kind may be cached, and for how long.
func (k *kind) idle(t *testing.T, bytes int64, after time.Duration) {
	t.Helper()
	limited(t, k.Device, func(l *cudaalloc.Limits) {
		l.PinnedIdle, l.ManagedIdle, l.DeviceIdle, l.IdleAfter = bytes, bytes, bytes, after
	})
}

// together allocates n pieces, uses them on a stream, frees them, and waits for the work.
func (k *kind) together(t *testing.T, n int, size int64) {
	t.Helper()
	s := k.stream(t)
	var all []device.Memory
	for range n {
		mem, err := k.Allocate(background, size, s)
		require.NoError(t, err)
		require.NoError(t, k.Memset(mem.Ptr(), 1, size, s))
		all = append(all, mem)
	}
	for _, mem := range all {
		require.NoError(t, mem.Free(s))
	}
	require.NoError(t, s.Synchronize(background))
}

// usage returns the statistics of this kind.
func (k *kind) usage() cudaalloc.Usage {
	s := k.ReadStats()
	switch k.ID().Type {
	case device.CUDAHost:
		return s.Pinned
	case device.CUDAManaged:
		return s.Managed
	}
	return s.Device
}

// bytes returns all memory of this kind that the driver has allocated.
func (k *kind) bytes() int64 {
	live := k.m.Sim.Report().Live
	switch k.ID().Type {
	case device.CUDAHost:
		return live.HostBytes
	case device.CUDAManaged:
		return live.ManagedBytes
	}
	return live.DeviceBytes[0]
}

// allocated returns memory that may be used on every stream. The test frees it.
func (k *kind) allocated(t *testing.T, size int64) device.Memory {
	t.Helper()
	mem, err := k.Allocate(background, size, nil)
	require.NoError(t, err)
	require.NoError(t, k.Legacy().Synchronize(background))
	return mem
}

// stream returns a stream that is closed when the test ends.
func (k *kind) stream(t *testing.T) device.Stream {
	t.Helper()
	s, err := k.NewStream()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// eachKind runs test on a machine of its own for each kind of memory, and for device memory
// with and without pools, side by side.
func eachKind(t *testing.T, o cudasim.Options, test func(*testing.T, *kind)) {
	noPools := o
	noPools.NoPools = true
	for name, row := range map[string]struct {
		options cudasim.Options
		of      func(*cudaalloc.Device) *cudaalloc.Device
		made    string
	}{
		"device, pools":    {o, (*cudaalloc.Device).Own, "cuMemAllocFromPoolAsync"},
		"device, no pools": {noPools, (*cudaalloc.Device).Own, "cuMemAlloc"},
		"page-locked":      {o, (*cudaalloc.Device).Pinned, "cuMemHostAlloc"},
		"managed":          {o, (*cudaalloc.Device).Managed, "cuMemAllocManaged"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := cudatest.Simulated(t, row.options)
			test(t, &kind{row.of(m.GPUs[0]), m, row.made})
		})
	}
}
