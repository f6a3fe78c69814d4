package attack_test

import (
	"sync"
	"testing"
	"time"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Flush waits until everything has ended that waits now: nothing is counted then.
func TestRule1FlushLeavesNothingWaiting(t *testing.T) {
	for name, o := range map[string]cudasim.Options{"in order": {}, "lazy": {Lazy: true}, "delay": {Delay: 100 * time.Microsecond}} {
		for _, what := range []string{"AfterWork", "OnComplete", "free", "limits", "stranger"} {
			t.Run(name+" "+what, func(t *testing.T) {
				m := cudatest.Simulated(t, o)
				gpu := m.GPUs[0]
				s := stream(t, gpu)
				st := m.Stranger(t, gpu)
				bad, n := 0, 300
				for range n {
					var wg sync.WaitGroup
					switch what {
					case "AfterWork":
						gpu.AfterWork(func() {})
					case "stranger":
						mem := must(gpu.Host().Allocate(background, 10_000, nil))
						_ = st.Memset(mem.Ptr(), 1, 10_000)
						gpu.AfterWork(func() { _ = mem.FreeAfter(nil) })
					case "OnComplete":
						mem := must(gpu.Host().Allocate(background, 10_000, s))
						_ = gpu.Memset(mem.Ptr(), 1, 10_000, s)
						e := event(t, s)
						e.OnComplete(func() {})
						_ = mem.FreeAfter(e)
						_ = e.Close()
					case "free", "limits":
						mem := must(gpu.Host().Allocate(background, 10_000, s))
						_ = gpu.Memset(mem.Ptr(), 1, 10_000, s)
						_ = mem.Free(s)
						if what == "limits" {
							_ = gpu.SetLimits(cudaalloc.Limits{Waiting: mib})
						}
					}
					wg.Wait()
					within(t, "Flush", func() error { return gpu.Flush(background) })
					if st := gpu.Stats(); st.Waiting != 0 || st.WaitingBytes != 0 {
						bad++
						time.Sleep(time.Millisecond)
					}
				}
				if bad > 0 {
					t.Errorf("%d of %d: something waits after Flush: %+v", bad, n, gpu.Stats())
				}
			})
		}
	}
}

// Trim leaves nothing that is counted, with and without something to give back.
func TestRule1TrimLeavesNothingWaiting(t *testing.T) {
	for _, what := range []string{"nothing", "cached", "streams"} {
		t.Run(what, func(t *testing.T) {
			m := cudatest.Simulated(t, cudasim.Options{})
			gpu := m.GPUs[0]
			bad, n := 0, 2000
			for range n {
				switch what {
				case "cached":
					mem := must(gpu.Host().Allocate(background, 10_000, nil))
					_ = mem.FreeAfter(nil)
				case "streams":
					s := must(gpu.NewStream())
					e := event(t, s)
					_ = e.Close()
					_ = s.Close()
				}
				within(t, "Trim", func() error { return gpu.Trim(background) })
				if gpu.Stats().Waiting != 0 {
					bad++
				}
			}
			if bad > 0 {
				t.Errorf("%d of %d: something waits after Trim: %+v", bad, n, gpu.Stats())
			}
		})
	}
}
