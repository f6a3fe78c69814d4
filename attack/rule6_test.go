package attack_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

func TestRule6Limits(t *testing.T) {
	each(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		var stop atomic.Bool
		var wg sync.WaitGroup
		values := []int64{0, 1, 4096, mib, 8 * mib, math.MaxInt64}
		pick := func() int64 { return values[rand.IntN(len(values))] }
		for range 3 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for !stop.Load() {
					l := cudaalloc.Limits{HostIdle: pick(), ManagedIdle: pick(), DeviceIdle: pick(), Waiting: pick(), IdleAfter: []time.Duration{0, 1, time.Millisecond, math.MaxInt64}[rand.IntN(4)]}
					if err := gpu.SetLimits(l); err != nil {
						t.Errorf("SetLimits %+v: %v", l, err)
						return
					}
					pause(300 * time.Microsecond)
				}
			}()
		}
		var fails atomic.Int64
		var first atomic.Value
		for range 6 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				s := must(gpu.NewStream())
				defer s.Close()
				for !stop.Load() {
					for _, d := range kinds(gpu) {
						size := 1 + rand.Int64N(mib)
						ctx, cancel := ended(5 * time.Second)
						mem, err := d.Allocate(ctx, size, s)
						cancel()
						if err != nil {
							fails.Add(1)
							first.Store(fmt.Sprint(d.ID(), " ", err))
							continue
						}
						_ = gpu.Memset(mem.Ptr(), 1, size, s)
						if rand.IntN(2) == 0 {
							_ = mem.Free(s)
						} else {
							e := must(gpu.NewEvent())
							_ = s.Record(e)
							_ = mem.FreeAfter(e)
							_ = e.Close()
						}
					}
				}
			}()
		}
		time.Sleep(700 * time.Millisecond)
		stop.Store(true)
		if !in(12*time.Second, wg.Wait) {
			t.Errorf("STUCK %s", stacks())
		}
		if fails.Load() > 0 {
			t.Errorf("FAILS %d: %v", fails.Load(), first.Load())
		}
		l := cudaalloc.Limits{Waiting: mib}
		require.NoError(t, gpu.SetLimits(l))
		require.NoError(t, gpu.Flush(background))
		eventually(t, "nothing cached", func() bool {
			s := gpu.Stats()
			return s.Host.Cached == 0 && s.Managed.Cached == 0
		})
		t.Logf("%+v", gpu.Stats())
		eventually(t, "nothing live", func() bool {
			h := m.Sim.Report().Live
			s := gpu.Stats()
			return h.HostBytes == 0 && h.ManagedBytes == 0 && s.Waiting == 0 && s.WaitingBytes == 0
		})
		require.NoError(t, gpu.SetLimits(cudaalloc.DefaultLimits()))
	})
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// Cached and waiting bytes stay within limits, with a held stream.
func TestRule6Kept(t *testing.T) {
	for _, o := range []cudasim.Options{{}, {NoPools: true, Delay: 100 * time.Microsecond}, {Lazy: true}} {
		m := cudatest.Simulated(t, o)
		gpu := m.GPUs[0]
		const limit = 2 * mib
		require.NoError(t, gpu.SetLimits(cudaalloc.Limits{HostIdle: limit, ManagedIdle: limit, DeviceIdle: limit, Waiting: limit, IdleAfter: time.Millisecond}))
		var stop atomic.Bool
		var wg sync.WaitGroup
		var worstCached, worstWaiting, worstHost, worstLive int64
		wg.Add(1)
		go func() {
			defer wg.Done()
			for !stop.Load() {
				s := gpu.Stats()
				worstCached = max(worstCached, s.Host.Cached, s.Managed.Cached)
				worstWaiting = max(worstWaiting, s.WaitingBytes)
				worstHost = max(worstHost, m.Sim.Report().Live.HostBytes)
				worstLive = max(worstLive, s.Host.Live)
			}
		}()
		var ws sync.WaitGroup
		for range 8 {
			ws.Add(1)
			go func() {
				defer ws.Done()
				s := must(gpu.NewStream())
				defer s.Close()
				for range 300 {
					for _, d := range kinds(gpu) {
						size := int64(100_000 + rand.IntN(100_000))
						mem, err := d.Allocate(background, size, s)
						if err != nil {
							t.Error(err)
							continue
						}
						_ = gpu.Memset(mem.Ptr(), 1, size, s)
						_ = mem.Free(s)
					}
				}
			}()
		}
		within(t, "all", func() error { ws.Wait(); return nil })
		stop.Store(true)
		wg.Wait()
		t.Logf("cached %d waiting %d host %d live %d of %d", worstCached, worstWaiting, worstHost, worstLive, limit)
		if worstCached > limit || worstWaiting > limit+8*300_000 {
			t.Errorf("LIMIT cached %d waiting %d of %d", worstCached, worstWaiting, limit)
		}
		eventually(t, "idle memory went back", func() bool { l := m.Sim.Report().Live; return l.HostBytes == 0 && l.ManagedBytes == 0 })
		require.NoError(t, gpu.SetLimits(cudaalloc.DefaultLimits()))
	}
}

var _ device.Device
