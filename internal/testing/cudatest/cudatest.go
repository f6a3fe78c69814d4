// Package cudatest gives tests of CUDA their driver: simulated machines with
// different schedules, or the driver that CDEVICE_CUDA_DRIVER names, which may be a
// real one. Tests named TestGPU... run on all of them and ask for nothing that only
// the simulator has; ci/gpu runs those on a machine with a GPU.
package cudatest

import (
	"context"
	"os"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	core "github.com/arrowdevice/arrowdevice/internal/gpu"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Machine is a driver and its GPUs, all open.
type Machine struct {
	path string
	GPUs []*cudaalloc.Device
	Sim  *cudasim.Sim // nil for a driver that tests do not control
	// Delayed reports that queued work lies for a while: a test with very many waits does
	// fewer.
	Delayed bool
}

// Schedules are the ways in which simulated machines do their work.
func Schedules() map[string]cudasim.Options {
	return map[string]cudasim.Options{
		"in order":         {},
		"delayed":          {Delay: 200 * time.Microsecond},
		"pageable async":   {Delay: 200 * time.Microsecond, PageableAsync: true},
		"random":           {Delay: 100 * time.Microsecond, PageableAsync: true, Random: true, Seed: 7, Devices: 3},
		"without pools":    {Delay: 50 * time.Microsecond, NoPools: true, NoConcurrentManaged: true, Devices: 2},
		"strangers' peers": {NoPeer: true, Devices: 2},
		"lazy":             {Lazy: true, PageableAsync: true, Devices: 2},
	}
}

// noDriver is the path that WithoutDefault sets.
const noDriver = "none"

// WithoutDefault makes device.Open find no GPU in this process, unless the environment names a
// driver: tests without a GPU must not depend on the machine, nor on the simulators that other
// tests have loaded, which the loader would return for libcuda.so.1.
func WithoutDefault() {
	if os.Getenv(cuda.PathVariable) == "" {
		os.Setenv(cuda.PathVariable, noDriver)
	}
}

// driver is the driver that the environment names, if any.
func driver() string {
	if path := os.Getenv(cuda.PathVariable); path != noDriver {
		return path
	}
	return ""
}

// EachMachine runs test on the driver that CDEVICE_CUDA_DRIVER names, or else on a
// simulated machine of each schedule.
func EachMachine(t *testing.T, test func(*testing.T, *Machine)) {
	if path := driver(); path != "" {
		t.Run("driver", func(t *testing.T) { test(t, open(t, path)) })
		return
	}
	for name, options := range Schedules() {
		t.Run(name, func(t *testing.T) { test(t, Simulated(t, options)) })
	}
}

// One is a machine of the driver that CDEVICE_CUDA_DRIVER names, or else a
// simulated one with these options.
func One(t testing.TB, o cudasim.Options) *Machine {
	if path := driver(); path != "" {
		return open(t, path)
	}
	return Simulated(t, o)
}

// WithAndWithoutPools runs test on the driver that CDEVICE_CUDA_DRIVER names, or else on simulated
// machines with these options, one of them without stream-ordered memory.
func WithAndWithoutPools(t *testing.T, o cudasim.Options, test func(*testing.T, *Machine)) {
	if path := driver(); path != "" {
		t.Run("driver", func(t *testing.T) { test(t, open(t, path)) })
		return
	}
	for name, none := range map[string]bool{"pools": false, "no pools": true} {
		t.Run(name, func(t *testing.T) {
			o.NoPools = none
			test(t, Simulated(t, o))
		})
	}
}

// Path is the path of the machine's driver.
func (m *Machine) Path() string { return m.path }

// Driver is the option of cudaalloc that names the machine's driver.
func (m *Machine) Driver() cudaalloc.Option { return cudaalloc.WithDriver(m.path) }

// Simulated returns a simulated machine. At the end of the test, the test fails if anything is live
// on it except the objects of an open GPU.
func Simulated(t testing.TB, o cudasim.Options) *Machine {
	sim := cudasim.Load(t, o)
	sim.Allow("cuDevicePrimaryCtxRetain", "cuMemPoolCreate", "cuStreamCreateWithPriority")
	m := open(t, sim.Path())
	m.Sim = sim
	m.Delayed = o.Delay > 0
	before := sim.Report().Live
	t.Cleanup(func() { m.Settle(t, before) })
	return m
}

// Settle trims the GPUs until a simulated machine has only the live objects that it had before.
// That may take a moment: an abandoned wait ends its stream or event on a goroutine of its own.
func (m *Machine) Settle(t testing.TB, before cudasim.Live) {
	t.Helper()
	if !within.Becomes(20*time.Second, func() bool {
		for _, gpu := range m.GPUs {
			trim(t, gpu)
		}
		return reflect.DeepEqual(before, m.Sim.Report().Live)
	}) {
		require.Equal(t, before, m.Sim.Report().Live)
	}
}

func open(t testing.TB, path string) *Machine {
	infos, err := cudaalloc.Devices(cudaalloc.WithDriver(path))
	require.NoError(t, err)
	require.NotEmpty(t, infos)
	m := &Machine{path: path}
	for _, info := range infos {
		gpu, err := cudaalloc.Open(info.Ordinal, cudaalloc.WithDriver(path))
		require.NoError(t, err)
		m.GPUs = append(m.GPUs, gpu)
	}
	t.Cleanup(func() { m.nothingLives(t) })
	return m
}

// nothingLives fails if memory is allocated on a GPU once all pending frees are done. Work of one
// GPU may keep memory of another one, so they are trimmed in turns.
func (m *Machine) nothingLives(t testing.TB) {
	for range len(m.GPUs) + 1 {
		for _, gpu := range m.GPUs {
			trim(t, gpu)
		}
	}
	for _, gpu := range m.GPUs {
		// What the driver has freed is counted a moment later, on whichever goroutine has freed it.
		within.Becomes(10*time.Second, func() bool { return allocations(gpu) == 0 })
		s := gpu.ReadStats()
		assert.Zero(t, allocations(gpu), "%+v", s)
		assert.Zero(t, s.Device.Live+s.Pinned.Live+s.Managed.Live+s.Opened.Live+s.Registered.Live, "%+v", s)
		assert.Zero(t, s.Waiting)
		assert.Zero(t, s.Lost)
	}
}

func allocations(gpu *cudaalloc.Device) int64 {
	s := gpu.ReadStats()
	return s.Device.Allocations + s.Pinned.Allocations + s.Managed.Allocations + s.Opened.Allocations + s.Registered.Allocations
}

// trim completes pending frees, and returns cached memory. A GPU that hangs fails the test.
func trim(t testing.TB, gpu *cudaalloc.Device) {
	t.Helper()
	within.Seconds(t, "Trim", func() error { return gpu.Trim(context.Background()) })
}

// Devices are the kinds of memory of all GPUs that the machine has.
func (m *Machine) Devices(t testing.TB) (all []*cudaalloc.Device) {
	for _, gpu := range m.GPUs {
		all = append(all, gpu, gpu.Pinned())
		probe, err := gpu.Managed().Allocate(context.Background(), 1, nil)
		if err == nil {
			require.NoError(t, probe.Free(nil))
			all = append(all, gpu.Managed())
		} else {
			require.ErrorIs(t, err, device.ErrNotSupported)
		}
	}
	return all
}

// HostRead declares that the host reads size bytes at p now, in a simulated machine's
// page-locked, registered or managed memory: the test fails unless that is ordered
// after the work that writes them. On a real driver it does nothing.
func (m *Machine) HostRead(p device.Ptr, size int64) {
	if m.Sim != nil {
		m.Sim.HostRead(uintptr(p), int(size))
	}
}

// HostWrite declares that the host writes size bytes at p now; see [Machine.HostRead].
func (m *Machine) HostWrite(p device.Ptr, size int64) {
	if m.Sim != nil {
		m.Sim.HostWrite(uintptr(p), int(size))
	}
}

// Hold holds a stream of the machine back: work enqueued on it from now on waits until open is
// called, at the latest when the test ends. Of several holds of a GPU, the one that was made first is opened
// first: a driver calls no host function while another one has not returned.
func (m *Machine) Hold(t testing.TB, s device.Stream) (open func()) {
	ctx := m.retain(t, s.Device().ID().Ordinal)
	open = hold(t, s.Device(), func() (func(), error) { return ctx.Hold(s.Handle()) })
	require.NoError(t, ctx.Release())
	return open
}

// TryHold is [Machine.Hold] with an error, and the end of no test opens it.
func TryHold(s device.Stream) (open func(), err error) {
	gpu := core.Of(s.Device())
	return tryHold(&gpu.Deferred, func() (func(), error) { return gpu.Ctx.Hold(s.Handle()) })
}

// hold makes work of a GPU pend, until open is called or the test ends.
func hold(t testing.TB, gpu device.Device, try func() (open func(), err error)) (open func()) {
	t.Helper()
	open, err := tryHold(&core.Of(gpu).Deferred, try)
	require.NoError(t, err)
	open = sync.OnceFunc(open)
	t.Cleanup(open)
	return open
}

// tryHold makes work of a GPU pend, until open is called. Memory may be given back to the driver while the GPU is idle, by a call that
// waits if the work comes just then, and holds up all calls behind the work that the test makes next. Then the work ends, and is made
// once more.
func tryHold(deferred *core.Deferred, try func() (open func(), err error)) (open func(), err error) {
	for began := time.Now(); ; {
		open, err = try()
		if err != nil || !deferred.Ending() || time.Since(began) > time.Second {
			return open, err
		}
		open()
		for deferred.Ending() && time.Since(began) < time.Second {
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// ResetPrimary resets the primary context of a GPU of a simulated machine, as another part
// of a program may: nothing that is in it survives. When the test ends, the machine has
// the GPU that is open then.
func (m *Machine) ResetPrimary(t testing.TB, ordinal int64) {
	require.NotNil(t, m.Sim, "a real one may be in use")
	require.NoError(t, m.device(t, ordinal).ResetPrimary())
	t.Cleanup(func() {
		gpu, err := cudaalloc.Open(ordinal, m.Driver())
		require.NoError(t, err)
		m.GPUs[ordinal] = gpu
	})
}

// Retain retains the primary context of a GPU once more, as another library does, until
// the test ends.
func (m *Machine) Retain(t testing.TB, ordinal int64) *cuda.Context {
	ctx := m.retain(t, ordinal)
	t.Cleanup(func() { assert.NoError(t, ctx.Release()) })
	return ctx
}

// retain retains the primary context of a GPU, which is open already, once more.
func (m *Machine) retain(t testing.TB, ordinal int64) *cuda.Context {
	ctx, err := m.device(t, ordinal).Context()
	require.NoError(t, err)
	return ctx
}

func (m *Machine) device(t testing.TB, ordinal int64) *cuda.Device {
	driver, err := cuda.Open(m.path)
	require.NoError(t, err)
	dev, err := driver.Device(int(ordinal))
	require.NoError(t, err)
	return dev
}
