package attack_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cudatest"
)

func TestRule7References(t *testing.T) {
	each(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		for _, d := range kinds(gpu) {
			// frees at once, from many goroutines: exactly one succeeds
			for i := range 30 {
				s := stream(t, gpu)
				mem := must(d.Allocate(background, 5000, s))
				_ = gpu.Memset(mem.Ptr(), 1, 5000, s)
				e := event(t, s)
				var ok atomic.Int64
				var wg sync.WaitGroup
				for j := range 8 {
					wg.Add(1)
					go func() {
						defer wg.Done()
						var err error
						if j%2 == 0 {
							err = mem.Free(s)
						} else {
							err = mem.FreeAfter(e)
						}
						if err == nil {
							ok.Add(1)
						}
						_ = e.Query
					}()
				}
				wg.Wait()
				if ok.Load() != 1 {
					t.Errorf("%s: %d frees succeed", d.ID(), ok.Load())
				}
				// Close many times, after OnComplete
				var called atomic.Int64
				e.OnComplete(func() { called.Add(1); _ = e.Close() })
				for range 4 {
					wg.Add(1)
					go func() { defer wg.Done(); _ = e.Close(); _ = s.Close() }()
				}
				wg.Wait()
				eventually(t, "called once", func() bool { return called.Load() == 1 })
				_ = i
			}
			// never recorded
			e := must(gpu.NewEvent())
			s := stream(t, gpu)
			mem := must(d.Allocate(background, 5000, s))
			require.NoError(t, s.Synchronize(background))
			require.NoError(t, mem.FreeAfter(e))
			n := 0
			e.OnComplete(func() { n++ })
			if n != 1 {
				eventually(t, "never recorded", func() bool { return n == 1 })
			}
			require.NoError(t, e.Close())
			// the CPU's
			ce := must(device.Host().NewEvent())
			mem = must(d.Allocate(background, 5000, s))
			require.NoError(t, s.Synchronize(background))
			err := mem.FreeAfter(ce)
			t.Log(d.ID(), "FreeAfter(event of the CPU):", err)
			hs := must(device.Host().NewStream())
			mem = must(d.Allocate(background, 5000, s))
			require.NoError(t, s.Synchronize(background))
			err = mem.Free(hs)
			t.Log(d.ID(), "Free(stream of the CPU):", err)
			if err != nil {
				_ = mem.Free(s)
			}
			// another GPU's
			if len(m.GPUs) > 1 {
				o := stream(t, m.GPUs[1])
				open := m.Hold(t, o)
				mem = must(d.Allocate(background, 5000, s))
				ready := event(t, s)
				require.NoError(t, o.WaitEvent(ready))
				target := must(m.GPUs[1].Allocate(background, 5000, o))
				if err := m.GPUs[1].Copy([]device.Range{{Dst: target.Ptr(), Src: mem.Ptr(), Size: 5000}}, o); err != nil {
					t.Error(err)
				}
				oe := event(t, o)
				err := mem.FreeAfter(oe)
				t.Log(d.ID(), "FreeAfter(event of another GPU):", err)
				again := must(d.Allocate(background, 5000, s))
				if d.ID().Type != device.CUDA && d.HostReadable() {
					m.HostWrite(again.Ptr(), 5000)
				}
				_ = gpu.Memset(again.Ptr(), 3, 5000, s)
				if err != nil {
					open()
					require.NoError(t, o.Synchronize(background))
					_ = mem.Free(s)
				}
				_ = oe.Close()
				open()
				require.NoError(t, o.Synchronize(background))
				require.NoError(t, again.Free(s))
				require.NoError(t, target.Free(o))
				_ = ready.Close()
			}
			// wrapped, destroyed by their owner once they are complete
			st := m.Stranger(t, gpu)
			open := st.Hold(t)
			mem = must(d.Allocate(background, 5000, s))
			require.NoError(t, s.Synchronize(background))
			require.NoError(t, st.Memset(mem.Ptr(), 1, 5000))
			h, destroy := st.Event(t)
			we := must(gpu.WrapEvent(h))
			require.NoError(t, mem.FreeAfter(we))
			require.NoError(t, we.Close())
			again := must(d.Allocate(background, 5000, s))
			if d.ID().Type != device.CUDA && d.HostReadable() {
				m.HostWrite(again.Ptr(), 5000)
			}
			_ = gpu.Memset(again.Ptr(), 3, 5000, s)
			open()
			within(t, "stranger", st.Synchronize)
			within(t, "flush", func() error { return gpu.Flush(background) })
			require.NoError(t, destroy())
			require.NoError(t, again.Free(s))
		}
		if v := violations(m); v != "" {
			t.Errorf("VIOLATION %s", v)
		}
	})
}

var _ = errors.Is
var _ time.Duration

// A consumer destroys its wrapped event right after FreeAfter: "e may be closed when
// FreeAfter returns".
func TestRule7OwnEventClosedAtOnce(t *testing.T) {
	each(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		for _, d := range kinds(gpu) {
			var wg sync.WaitGroup
			for range 6 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					s := must(gpu.NewStream())
					for range 60 {
						mem := must(d.Allocate(background, 5000, s))
						_ = gpu.Memset(mem.Ptr(), 1, 5000, s)
						e := must(gpu.NewEvent())
						_ = s.Record(e)
						if err := mem.FreeAfter(e); err != nil {
							t.Error(err)
						}
						e.OnComplete(func() {})
						_ = e.Close()
						// its handle goes to the free list: recorded on a later stream at once
						e2 := must(gpu.NewEvent())
						_ = s.Record(e2)
						_ = e2.Close()
						if d.ID().Type != device.CUDA && d.HostReadable() {
							mem := must(d.Allocate(background, 5000, s))
							m.HostWrite(mem.Ptr(), 5000)
							_ = mem.FreeAfter(nil)
						}
					}
					_ = s.Close()
				}()
			}
			within(t, "all", func() error { wg.Wait(); return nil })
		}
		within(t, "Flush", func() error { return gpu.Flush(background) })
		if v := violations(m); v != "" {
			t.Errorf("VIOLATION %s", v)
		}
	})
}
