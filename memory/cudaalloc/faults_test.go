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
	two := cudasim.Options{Devices: 2, NoPoison: true}
	for name, row := range map[string]struct {
		options cudasim.Options
		of      func(*cudaalloc.Device) *cudaalloc.Device
		peers   bool
	}{
		"device":           {two, (*cudaalloc.Device).Own, true},
		"device, no pools": {cudasim.Options{NoPools: true, NoPoison: true}, (*cudaalloc.Device).Own, false},
		"page-locked":      {two, (*cudaalloc.Device).Pinned, true},
		"managed":          {two, (*cudaalloc.Device).Managed, true},
		"shareable":        {two, (*cudaalloc.Device).Shareable, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := cudatest.Simulated(t, row.options)
			var peers []device.Device
			if row.peers {
				peers = append(peers, m.GPUs[1])
			}
			d := row.of(m.GPUs[0])
			eachCallFails(t, m, d, contract(d, peers...))
		})
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
	delete(called, "cuEventSynchronize") // a wait that is over soon only asks
	delete(failed, "cuEventSynchronize")
	assert.Equal(t, called, failed, "each function failed")
	assert.Greater(t, faults, 500)
}

// failEach makes each call of the driver in call fail, one at a time, until call makes no more, which is at least
// the given number. check is called after each, with the function and the error.
func failEach(t *testing.T, sim *cudasim.Sim, least int, call func() error, check func(function string, err error)) {
	t.Helper()
	for k := 1; ; k++ {
		sim.Fail("", k, unknownError)
		err := call()
		function, met := sim.Failed()
		sim.Fail("", 0, 0)
		if !met {
			require.NoError(t, err)
			require.Greater(t, k, least)
			check("", nil)
			return
		}
		if err != nil {
			require.ErrorContains(t, err, "cuda: "+function+"(", "call %d", k)
		}
		check(function, err)
	}
}

// A GPU that could not be opened has taken nothing, and can be opened later.
func TestEachCallOfOpenFails(t *testing.T) {
	for name, options := range map[string]cudasim.Options{"pools": {}, "no pools": {NoPools: true}} {
		t.Run(name, func(t *testing.T) {
			sim := cudasim.Load(t, options)
			var gpu *cudaalloc.Device
			failEach(t, sim, 8, func() (err error) {
				gpu, err = cudaalloc.Open(0, cudaalloc.WithDriver(sim.Path()))
				return err
			}, func(function string, err error) {
				if err == nil {
					require.NoError(t, cudaalloc.Close(gpu))
					restoring := []string{"", "cuCtxSetCurrent", "cuThreadExchangeStreamCaptureMode"} // is tried again
					require.Contains(t, restoring, function)
				} else {
					require.ErrorContains(t, err, "CUDA_ERROR_UNKNOWN")
				}
				sim.NoLeaks(t)
			})
		})
	}
}

// Faults of functions that the contract does not call, call by call.
func TestEachOtherCallFails(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	g, driver := m.On(t, m.GPUs[0]), cudaalloc.WithDriver(m.Sim.Path())
	managed, shared := m.On(t, g.Managed()).Memory(100, nil), m.On(t, g.Shareable()).Memory(100, nil)
	page := make([]byte, 4096)
	before := m.Sim.Report().Live
	for name, call := range map[string]func() error{
		"Devices":             func() error { _, err := cudaalloc.Devices(driver); return err },
		"DriverVersion":       func() error { _, err := cudaalloc.DriverVersion(driver); return err },
		"MemoryInfo":          func() error { _, _, err := g.MemoryInfo(); return err },
		"Priorities":          func() error { _, _, err := g.Priorities(); return err },
		"Lookup":              func() error { _, err := g.Lookup(managed.Ptr()); return err },
		"device.Lookup":       func() error { _, err := device.Lookup(managed.Ptr()); return err },
		"CanAccessPeer":       func() error { _, err := g.CanAccessPeer(m.GPUs[1]); return err },
		"EnablePeerAccess":    func() error { return g.EnablePeerAccess(m.GPUs[1]) },
		"Prefetch":            func() error { return g.Prefetch(managed.Ptr(), 100, nil) },
		"PrefetchToHost":      func() error { return g.PrefetchToHost(managed.Ptr(), 100, nil) },
		"Query":               func() error { _, err := g.Legacy().Query(); return err },
		"NewManagedAllocator": func() error { _, err := cudaalloc.NewManagedAllocator(g.Device); return err },
		"RegistersReadOnly":   func() error { _, err := g.RegistersReadOnly(); return err },
		"RegisterMemory": func() error {
			mem, err := g.RegisterMemory(cudatest.Pointer(page), int64(len(page)), false, nil)
			if err == nil {
				_ = mem.FreeAfter(nil)
				_ = g.Flush(background) // the driver may fail once
			}
			return err
		},
		"UUID":         func() error { _, err := g.UUID(); return err },
		"MemoryHandle": func() error { _, _, err := g.MemoryHandle(shared.Ptr()); return err },
		"NewSharedEvent": func() error {
			e, _, err := g.NewSharedEvent()
			if err == nil {
				_ = e.Close() // it is tried again
			}
			return err
		},
		"RegisterHost": func() error {
			if err := g.RegisterHost(cudatest.Pointer(page), int64(len(page)), false); err != nil {
				return err
			}
			first := g.UnregisterHost(background, cudatest.Pointer(page))
			if first != nil {
				require.NoError(t, g.UnregisterHost(background, cudatest.Pointer(page)), "again")
			}
			return first
		},
	} {
		t.Run(name, func(t *testing.T) {
			failEach(t, m.Sim, 1, call, func(function string, err error) {
				if err == nil && function != "" {
					require.Contains(t, madeGood, function)
				}
				m.Settle(t, before)
			})
		})
	}
}

// An allocation that the driver refuses once is retried before an error is returned.
func TestNoMemoryOnce(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	for function, d := range map[string]*cudaalloc.Device{
		"cuMemAllocFromPoolAsync": gpu, "cuMemHostAlloc": gpu.Pinned(), "cuMemAllocManaged": gpu.Managed(), "cuMemAlloc": gpu.Shareable(),
	} {
		m.Sim.Fail(function, 1, int(cudaalloc.OutOfMemory))
		m.On(t, d).Memory(100, nil)
		_, met := m.Sim.Failed()
		assert.True(t, met)
	}
}

// An object that the driver refuses twice to end is ended at the third attempt, on every path.
func TestEndsThatFailTwice(t *testing.T) {
	const size = 1000
	for name, row := range map[string]struct {
		function string
		do       func(t *testing.T, here, there cudatest.GPU, fail func())
	}{
		"a stream": {"cuStreamDestroy", func(t *testing.T, here, _ cudatest.GPU, fail func()) {
			s := here.Stream()
			fail()
			assert.Error(t, s.Close())
		}},
		"a stream that is asked about": {"cuStreamDestroy", func(t *testing.T, here, _ cudatest.GPU, fail func()) {
			s := here.Stream()
			asked := cudaalloc.Ask(here.Device)
			require.NoError(t, s.Close())
			fail()
			asked()
		}},
		"a stream for copies": {"cuStreamDestroy", func(t *testing.T, here, _ cudatest.GPU, fail func()) {
			s, err := here.CopyStream()
			require.NoError(t, err)
			require.NoError(t, s.Close())
			fail()
			require.NoError(t, here.Trim(background))
		}},
		"a stream of another GPU": {"cuStreamDestroy", func(t *testing.T, here, there cudatest.GPU, fail func()) {
			own := there.Ready(size)
			fail()
			there.Fill(own.Ptr(), 1, size, here.Legacy())
			require.NoError(t, own.Free(here.Legacy()))
		}},
		"an event between two GPUs": {"cuEventDestroy", func(t *testing.T, here, there cudatest.GPU, fail func()) {
			own := there.Ready(size)
			open := here.M.Hold(t, here.Legacy())
			fail()
			there.Fill(own.Ptr(), 1, size, here.Legacy())
			open()
			require.NoError(t, own.Free(here.Legacy()))
		}},
		"events on the list": {"cuEventDestroy", func(t *testing.T, here, _ cudatest.GPU, fail func()) {
			e, err := here.NewEvent()
			require.NoError(t, err)
			require.NoError(t, e.Close())
			fail()
			require.NoError(t, here.Trim(background))
		}},
		"memory": {"cuMemFreeAsync", func(t *testing.T, here, _ cudatest.GPU, fail func()) {
			own := here.Ready(size)
			fail()
			assert.Error(t, own.FreeAfter(nil))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
			defer m.Sim.Fail("", 0, 0)
			row.do(t, m.On(t, m.GPUs[0]), m.On(t, m.GPUs[1]), func() {
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
	g := cudatest.SimulatedGPU(t, cudasim.Options{NoPools: true})
	for range 100 {
		mem, err := g.Allocate(background, 100, nil)
		require.NoError(t, err)
		require.NoError(t, g.Legacy().Synchronize(background))
		require.NoError(t, g.FreeElsewhere(mem.Ptr()))
		require.NoError(t, mem.Free(nil))
		require.NoError(t, g.Flush(background))
		assert.Zero(t, g.ReadStats().Lost, "it is in the cache")
		events := make([]device.Event, 200) // which Trim ends after the memory
		for i := range events {
			events[i], err = g.NewEvent()
			require.NoError(t, err)
		}
		for _, e := range events {
			require.NoError(t, e.Close())
		}
		assert.ErrorIs(t, g.Trim(background), cudaalloc.InvalidValue)
		assert.EqualValues(t, 1, g.ReadStats().Lost)
		require.NoError(t, g.Trim(background), "it is not tried again")
		g.ForgetLost()
	}
}
