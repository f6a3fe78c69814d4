package cudaalloc_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/device/devicetest"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

const unknownError = 999 // CUDA_ERROR_UNKNOWN

// recorder is a devicetest.T that records failures instead of failing.
type recorder struct {
	mu       sync.Mutex
	messages []string
	cleanups []func()
}

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, fmt.Sprintf(format, args...))
}

func (r *recorder) FailNow() { runtime.Goexit() }

func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// run runs the rule to its end and returns the failures.
func run(rule devicetest.Rule) string {
	r := &recorder{}
	var ended sync.WaitGroup
	ended.Go(func() {
		defer r.cleanUp()
		rule.Test(r)
	})
	ended.Wait()
	return strings.Join(r.messages, "\n")
}

func (r *recorder) cleanUp() {
	if len(r.cleanups) == 0 {
		return
	}
	last := r.cleanups[len(r.cleanups)-1]
	r.cleanups = r.cleanups[:len(r.cleanups)-1]
	defer r.cleanUp() // even if this one ends the goroutine
	last()
}

// madeGood are calls whose failure the library can make good, so that it need not be
// reported: a deferred free is tried again, a context is restored again, and
// an event that cannot be asked is destroyed instead of kept.
var madeGood = []string{
	"cuCtxSynchronize", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuMemFree", "cuMemFreeHost", "cuMemFreeAsync", "cuMemHostUnregister", "cuEventQuery",
	"cuEventDestroy", "cuStreamIsCapturing", "cuMemPoolTrimTo", "cuStreamDestroy",
	"cuCtxGetId", "cuDevicePrimaryCtxGetState", // then the context is not gone
	"cuThreadExchangeStreamCaptureMode", // there is no capture
}

// givesUpWaits are the rules that end a wait by its context: an error of the wait is not
// reported where the context's is, and a handle that could not be ended is ended later.
var (
	givesUpWaits  = map[string]bool{"a context ends a wait, and the work goes on": true, "closing ends no wait": true}
	afterGivingUp = map[string]bool{"cuStreamSynchronize": true, "cuEventSynchronize": true, "cuStreamQuery": true, "cuStreamDestroy": true}
)

// amongPeers is the rule whose copies are made on streams that the caller has not seen.
const amongPeers = "memory is copied between devices, on streams of either"

// Every call of the driver in the contract is made to fail, one at a time (see
// [cudatest.Faults]): an error names the call, nothing is lost, and the device is usable.
func TestEachCallFails(t *testing.T) {
	for name, options := range map[string]cudasim.Options{"pools": {Devices: 2, NoPoison: true}, "no pools": {NoPools: true, NoPoison: true}} {
		for kind, of := range map[string]func(*cudaalloc.Device) *cudaalloc.Device{
			"device": (*cudaalloc.Device).Own, "page-locked": (*cudaalloc.Device).Pinned,
			"managed": (*cudaalloc.Device).Managed, "shareable": (*cudaalloc.Device).Shareable,
		} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				m := cudatest.Simulated(t, options)
				var peers []device.Device
				if len(m.GPUs) > 1 && kind != "shareable" {
					peers = append(peers, m.GPUs[1])
				}
				d := of(m.GPUs[0])
				eachCallFails(t, m, d, contract(d, peers...))
			})
		}
	}
}

func eachCallFails(t *testing.T, m *cudatest.Machine, d *cudaalloc.Device, opts []devicetest.Option) {
	before := m.Sim.Report().Live
	faults, called, failed := 0, map[string]bool{}, map[string]bool{}
	for _, rule := range devicetest.Rules(d, opts...) {
		switch rule.Name {
		case "many goroutines may use it at once", // its calls have no positions
			"large uploads arrive whole": // nothing but more of the same
			continue
		}
		if rule.Timed {
			continue // its calls have no positions either
		}
		m.Sim.ResetCounters()
		require.Empty(t, run(rule), rule.Name)
		m.Settle(t, before)
		for _, fault := range cudatest.Faults(m.Sim.Report().Calls) {
			called[fault.Function] = true
			var failures string
			if !m.Meets(t, rule.Name, fault, unknownError, func() { failures = run(rule) }) {
				continue // fewer calls than in the first run: a wait was over sooner
			}
			faults++
			failed[fault.Function] = true
			switch {
			case failures != "":
				require.Contains(t, failures, fault.Function+"(", "%s: %s", rule.Name, fault)
			case rule.Name == "an impossible size is refused": // by the driver, for either reason
			case givesUpWaits[rule.Name] && afterGivingUp[fault.Function]: // the caller has left
			case rule.Name == amongPeers && fault.Function == "cuStreamDestroy": // a stream of our own, which is ended later
			default:
				require.Contains(t, madeGood, fault.Function, "%s: %s", rule.Name, fault)
			}
			m.Settle(t, before)
			require.Zero(t, d.ReadStats().Lost, "%s: %s", rule.Name, fault)
		}
		require.Empty(t, run(rule), "afterwards: %s", rule.Name)
		m.Settle(t, before)
	}
	t.Logf("%d calls failed, one at a time, of %d functions", faults, len(failed))
	assert.Equal(t, called, failed, "each function failed")
	assert.Greater(t, faults, 500)
}

// A GPU that could not be opened has taken nothing, and can be opened later.
func TestEachCallOfOpenFails(t *testing.T) {
	for name, options := range map[string]cudasim.Options{"pools": {}, "no pools": {NoPools: true}} {
		t.Run(name, func(t *testing.T) {
			sim := cudasim.Load(t, options)
			for k := 1; ; k++ {
				sim.Fail("", k, unknownError)
				gpu, err := cudaalloc.Open(0, cudaalloc.WithDriver(sim.Path()))
				function, met := sim.Failed()
				sim.Fail("", 0, 0)
				if err == nil {
					require.NoError(t, cudaalloc.Close(gpu))
				}
				if !met {
					require.Greater(t, k, 8)
					require.NoError(t, err)
					break
				}
				if err == nil {
					require.Contains(t, []string{"cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode"}, function, "restoring is tried again")
				} else {
					require.ErrorContains(t, err, "cuda: "+function+"(")
					require.ErrorContains(t, err, "CUDA_ERROR_UNKNOWN")
				}
				sim.NoLeaks(t)
			}
		})
	}
}

// Faults of functions that the contract does not call, call by call.
func TestEachOtherCallFails(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	gpu, driver := m.GPUs[0], cudaalloc.WithDriver(m.Sim.Path())
	managed, err := gpu.Managed().Allocate(background, 100, nil)
	require.NoError(t, err)
	shared, err := gpu.Shareable().Allocate(background, 100, nil)
	require.NoError(t, err)
	page := make([]byte, 4096)
	before := m.Sim.Report().Live
	for name, call := range map[string]func() error{
		"Devices":             func() error { _, err := cudaalloc.Devices(driver); return err },
		"DriverVersion":       func() error { _, err := cudaalloc.DriverVersion(driver); return err },
		"MemoryInfo":          func() error { _, _, err := gpu.MemoryInfo(); return err },
		"Priorities":          func() error { _, _, err := gpu.Priorities(); return err },
		"Lookup":              func() error { _, err := gpu.Lookup(managed.Ptr()); return err },
		"device.Lookup":       func() error { _, err := device.Lookup(managed.Ptr()); return err },
		"CanAccessPeer":       func() error { _, err := gpu.CanAccessPeer(m.GPUs[1]); return err },
		"EnablePeerAccess":    func() error { return gpu.EnablePeerAccess(m.GPUs[1]) },
		"Prefetch":            func() error { return gpu.Prefetch(managed.Ptr(), 100, nil) },
		"PrefetchToHost":      func() error { return gpu.PrefetchToHost(managed.Ptr(), 100, nil) },
		"Query":               func() error { _, err := gpu.Legacy().Query(); return err },
		"NewManagedAllocator": func() error { _, err := cudaalloc.NewManagedAllocator(gpu); return err },
		"RegistersReadOnly":   func() error { _, err := gpu.RegistersReadOnly(); return err },
		"RegisterMemory": func() error {
			mem, err := gpu.RegisterMemory(cudatest.Pointer(page), int64(len(page)), false, nil)
			if err == nil {
				_ = mem.FreeAfter(nil)
				_ = gpu.Flush(background) // the driver may fail once
			}
			return err
		},
		"UUID":         func() error { _, err := gpu.UUID(); return err },
		"MemoryHandle": func() error { _, _, err := gpu.MemoryHandle(shared.Ptr()); return err },
		"NewSharedEvent": func() error {
			e, _, err := gpu.NewSharedEvent()
			if err == nil {
				_ = e.Close() // it is tried again
			}
			return err
		},
		"RegisterHost": func() error {
			if err := gpu.RegisterHost(cudatest.Pointer(page), int64(len(page)), false); err != nil {
				return err
			}
			first := gpu.UnregisterHost(background, cudatest.Pointer(page))
			if first != nil {
				require.NoError(t, gpu.UnregisterHost(background, cudatest.Pointer(page)), "again")
			}
			return first
		},
	} {
		for k := 1; ; k++ {
			m.Settle(t, before)
			m.Sim.Fail("", k, unknownError)
			err := call()
			function, met := m.Sim.Failed()
			m.Sim.Fail("", 0, 0)
			if !met {
				require.NoError(t, err, name)
				require.Greater(t, k, 1)
				break
			}
			if err == nil {
				require.Contains(t, madeGood, function, "%s: call %d", name, k)
			} else {
				require.ErrorContains(t, err, "cuda: "+function+"(", "%s: call %d", name, k)
			}
		}
	}
	require.NoError(t, managed.Free(nil))
	require.NoError(t, shared.Free(nil))
}

// An allocation that the driver refuses once is retried before an error is returned.
func TestNoMemoryOnce(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	for _, row := range []struct {
		d        *cudaalloc.Device
		function string
	}{{gpu, "cuMemAllocFromPoolAsync"}, {gpu.Pinned(), "cuMemHostAlloc"}, {gpu.Managed(), "cuMemAllocManaged"}, {gpu.Shareable(), "cuMemAlloc"}} {
		m.Sim.Fail(row.function, 1, int(cudaalloc.OutOfMemory))
		mem, err := row.d.Allocate(background, 100, nil)
		require.NoError(t, err)
		_, met := m.Sim.Failed()
		assert.True(t, met)
		require.NoError(t, mem.Free(nil))
	}
}

// An object that the driver refuses twice to end is ended at the third attempt, on every path.
func TestEndsThatFailTwice(t *testing.T) {
	for name, row := range map[string]struct {
		function string
		do       func(t *testing.T, m *cudatest.Machine, fail func())
	}{
		"a stream": {"cuStreamDestroy", func(t *testing.T, m *cudatest.Machine, fail func()) {
			s, err := m.GPUs[0].NewStream()
			require.NoError(t, err)
			fail()
			assert.Error(t, s.Close())
		}},
		"a stream that is asked about": {"cuStreamDestroy", func(t *testing.T, m *cudatest.Machine, fail func()) {
			s, err := m.GPUs[0].NewStream()
			require.NoError(t, err)
			asked := cudaalloc.Ask(m.GPUs[0])
			require.NoError(t, s.Close())
			fail()
			asked()
		}},
		"a stream for copies": {"cuStreamDestroy", func(t *testing.T, m *cudatest.Machine, fail func()) {
			s, err := m.GPUs[0].CopyStream()
			require.NoError(t, err)
			require.NoError(t, s.Close())
			fail()
			require.NoError(t, m.GPUs[0].Trim(background))
		}},
		"a stream of another GPU": {"cuStreamDestroy", func(t *testing.T, m *cudatest.Machine, fail func()) {
			here, there := m.GPUs[0], m.GPUs[1]
			own, err := there.Allocate(background, 1000, nil)
			require.NoError(t, err)
			require.NoError(t, there.Legacy().Synchronize(background))
			fail()
			require.NoError(t, there.Memset(own.Ptr(), 1, 1000, here.Legacy()))
			require.NoError(t, own.Free(here.Legacy()))
		}},
		"an event between two GPUs": {"cuEventDestroy", func(t *testing.T, m *cudatest.Machine, fail func()) {
			here, there := m.GPUs[0], m.GPUs[1]
			own, err := there.Allocate(background, 1000, nil)
			require.NoError(t, err)
			require.NoError(t, there.Legacy().Synchronize(background))
			open := m.Hold(t, here.Legacy())
			fail()
			require.NoError(t, there.Memset(own.Ptr(), 1, 1000, here.Legacy()))
			open()
			require.NoError(t, own.Free(here.Legacy()))
		}},
		"events on the list": {"cuEventDestroy", func(t *testing.T, m *cudatest.Machine, fail func()) {
			e, err := m.GPUs[0].NewEvent()
			require.NoError(t, err)
			require.NoError(t, e.Close())
			fail()
			require.NoError(t, m.GPUs[0].Trim(background))
		}},
		"memory": {"cuMemFreeAsync", func(t *testing.T, m *cudatest.Machine, fail func()) {
			own, err := m.GPUs[0].Allocate(background, 1000, nil)
			require.NoError(t, err)
			require.NoError(t, m.GPUs[0].Legacy().Synchronize(background))
			fail()
			assert.Error(t, own.FreeAfter(nil))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
			defer m.Sim.Fail("", 0, 0)
			row.do(t, m, func() {
				m.Sim.ResetCounters()
				m.Sim.FailTimes(row.function, 1, 2, unknownError)
			})
			within.Eventually(t, "the third attempt", func() bool { return m.Sim.Calls(row.function) >= 3 })
			for _, gpu := range m.GPUs {
				require.NoError(t, gpu.Flush(background))
				assert.Zero(t, gpu.ReadStats().Lost)
			}
		})
	}
}

// Memory that the driver refuses to free repeatedly is counted as lost, not retried for ever. Trim
// returns the error, also where it comes before Trim waits for it.
func TestLost(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{NoPools: true})
	gpu := m.GPUs[0]
	for range 100 {
		mem, err := gpu.Allocate(background, 100, nil)
		require.NoError(t, err)
		require.NoError(t, gpu.Legacy().Synchronize(background))
		require.NoError(t, gpu.FreeElsewhere(mem.Ptr()))
		require.NoError(t, mem.Free(nil))
		require.NoError(t, gpu.Flush(background))
		assert.Zero(t, gpu.ReadStats().Lost, "it is in the cache")
		events := make([]device.Event, 200) // which Trim ends after the memory
		for i := range events {
			events[i], err = gpu.NewEvent()
			require.NoError(t, err)
		}
		for _, e := range events {
			require.NoError(t, e.Close())
		}
		assert.ErrorIs(t, gpu.Trim(background), cudaalloc.InvalidValue)
		assert.EqualValues(t, 1, gpu.ReadStats().Lost)
		require.NoError(t, gpu.Trim(background), "it is not tried again")
		gpu.ForgetLost()
	}
}
