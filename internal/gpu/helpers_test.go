package gpu_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	core "github.com/arrowdevice/arrowdevice/internal/gpu"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// background is the context of calls that no test ends.
var background = context.Background()

const (
	mib          = 1 << 20
	unknownError = 999 // CUDA_ERROR_UNKNOWN
)

// seconds returns a context for calls that may take some seconds.
func seconds(t *testing.T, n time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(background, n*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// heapOf is the heap of a GPU.
func heapOf(g cudatest.GPU) *core.Heap { return &core.Of(g.Device).Heap }

// limited changes limits of the GPU.
func limited(t *testing.T, g cudatest.GPU, change func(*cudaalloc.Limits)) {
	t.Helper()
	limits := g.Limits()
	change(&limits)
	require.NoError(t, g.SetLimits(limits))
}

// freed is a round of memory that work on s uses.
func freed(ctx context.Context, g cudatest.GPU, size int64, s device.Stream) error {
	mem, err := g.Allocate(ctx, size, s)
	if err != nil {
		return err
	}
	if err := g.Memset(mem.Ptr(), 1, size, s); err != nil {
		return err
	}
	return mem.Free(s)
}

// kind is one kind of memory of a simulated GPU.
type kind struct {
	cudatest.GPU
	made string // the function of the driver that allocates it
}

// pooled reports whether the memory is allocated and freed in stream order.
func (k kind) pooled() bool { return k.made == "cuMemAllocFromPoolAsync" }

// unlimited reports that the simulator has any amount of such memory.
func (k kind) unlimited() bool { return k.made == "cuMemAllocManaged" }

// idle sets how many bytes of this kind may be cached, and for how long.
func (k kind) idle(t *testing.T, bytes int64, after time.Duration) {
	t.Helper()
	limited(t, k.GPU, func(l *cudaalloc.Limits) {
		l.PinnedIdle, l.ManagedIdle, l.DeviceIdle, l.IdleAfter = bytes, bytes, bytes, after
	})
}

// together allocates n pieces, uses them on a stream, frees them, and waits for the work.
func (k kind) together(t *testing.T, n int, size int64) {
	t.Helper()
	s := k.Stream()
	var all []device.Memory
	for range n {
		mem := k.Memory(size, s)
		k.Fill(mem.Ptr(), 1, size, s)
		all = append(all, mem)
	}
	for _, mem := range all {
		require.NoError(t, mem.Free(s))
	}
	require.NoError(t, s.Synchronize(background))
}

// usage returns the statistics of this kind, and all memory of it that the driver has allocated.
func (k kind) usage() (u cudaalloc.Usage, bytes int64) {
	s, live := k.ReadStats(), k.M.Sim.Report().Live
	switch k.ID().Type {
	case device.CUDAHost:
		return s.Pinned, live.HostBytes
	case device.CUDAManaged:
		return s.Managed, live.ManagedBytes
	}
	return s.Device, live.DeviceBytes[0]
}

// ended reports whether no memory of this kind is in use.
func (k kind) ended() bool {
	u, _ := k.usage()
	return u.Live == 0
}

// others asserts that allocations on another stream do not get memory that pending work uses.
func (k kind) others(t *testing.T, size int64, pending device.Memory) {
	t.Helper()
	s := k.Stream()
	for range 8 {
		m, err := k.Allocate(seconds(t, 5), size, s)
		require.NoError(t, err)
		assert.NotEqual(t, pending.Ptr(), m.Ptr(), "given out while its work is pending")
		k.Fill(m.Ptr(), 1, size, s)
		defer func() { require.NoError(t, m.Free(s)) }()
	}
}

// eachKind runs test on a machine of its own for each kind of memory, and for device memory
// with and without pools, side by side.
func eachKind(t *testing.T, o cudasim.Options, test func(*testing.T, kind)) {
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
			test(t, kind{m.On(t, row.of(m.GPUs[0])), row.made})
		})
	}
}
