package attack_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

func TestRule9Resets(t *testing.T) {
	options := machines()
	options["stable, no pools"] = cudasim.Options{StablePrimary: true, NoPools: true, Delay: 50 * time.Microsecond}
	options["stable, lazy"] = cudasim.Options{StablePrimary: true, Lazy: true}
	for name, o := range options {
		t.Run(name, func(t *testing.T) {
			m := cudatest.Simulated(t, o)
			var current atomic.Pointer[cudaalloc.Device]
			current.Store(m.GPUs[0])
			var stop atomic.Bool
			var wg sync.WaitGroup
			col := ints(1000)
			defer col.Release()
			for range 50 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for !stop.Load() {
						gpu := current.Load()
						var s device.Stream
						s, err := gpu.NewStream()
						if err != nil {
							pause(time.Millisecond)
							continue
						}
						for _, d := range kinds(gpu) {
							ctx, cancel := ended(time.Second)
							mem, err := d.Allocate(ctx, 5000, s)
							cancel()
							if err != nil {
								continue
							}
							_ = d.Memset(mem.Ptr(), 1, 5000, s)
							e, err := d.NewEvent()
							if err == nil {
								_ = s.Record(e)
								e.OnComplete(func() {})
							}
							pause(time.Millisecond)
							if err == nil && rand.IntN(2) == 0 {
								_ = mem.FreeAfter(e)
							} else {
								_ = mem.Free(s)
							}
							if err == nil {
								_ = e.Close()
							}
						}
						gpu.AfterWork(func() {})
						ctx, cancel := ended(time.Second)
						if a, err := cdevice.CopyArrayToDevice(ctx, col, gpu); err == nil {
							if h, err := a.CopyToHost(ctx, nil); err == nil {
								h.Release()
							}
							a.Release()
						}
						_ = s.Synchronize(ctx)
						if rand.IntN(8) == 0 {
							_ = gpu.Flush(ctx)
							if r, err := hostpinned.Register(gpu, make([]byte, 20000)); err == nil {
								if r.Unregister(ctx) != nil {
									_ = r.Unregister(background)
								}
							}
						}
						cancel()
						_ = s.Close()
					}
				}()
			}
			old := []*cudaalloc.Device{m.GPUs[0]}
			for range 4 {
				time.Sleep(60 * time.Millisecond)
				m.ResetPrimary(t, 0)
				var gpu *cudaalloc.Device
				within(t, "Open", func() (err error) { gpu, err = cudaalloc.Open(0, m.Driver()); return })
				if gpu == nil {
					break
				}
				old = append(old, gpu)
				// memory of the new one is not freed by the old one
				var err error
				ctx, cancel := ended(3 * time.Second)
				mem, err := gpu.Allocate(ctx, 5000, nil)
				cancel()
				if err != nil {
					t.Log("Allocate on the new:", err)
				} else {
					time.Sleep(20 * time.Millisecond)
					for range 20 {
						if err := gpu.Memset(mem.Ptr(), 1, 5000, gpu.Legacy()); err != nil {
							t.Errorf("memory of the new: %v", err)
						}
						pause(time.Millisecond)
					}
					if err := mem.Free(nil); err != nil {
						t.Errorf("memory of the new: Free: %v", err)
					}
				}
				current.Store(gpu)
			}
			stop.Store(true)
			if !in(8*time.Second, wg.Wait) {
				t.Errorf("STUCK %s", stacks())
				t.FailNow()
			}
			for i, d := range old {
				if !in(5*time.Second, func() {
					ctx, cancel := ended(3 * time.Second)
					defer cancel()
					if err := d.Flush(ctx); err != nil {
						t.Log(i, "Flush:", err)
					}
				}) {
					t.Errorf("STUCK Flush of %d", i)
				}
				s := d.Stats()
				if s.Waiting != 0 || s.WaitingBytes != 0 || s.Host.Live+s.Managed.Live+s.Device.Live != 0 || s.Lost != 0 {
					t.Errorf("STATS of %d of %d: %+v", i, len(old), s)
				}
			}
			if v := violations(m); v != "" {
				t.Logf("VIOLATION (may be the test's own) %s", v)
			}
		})
	}
	require.True(t, true)
}

// The context is reset while memory is uploaded: an error, not a fault.
func TestRule9ResetWhileUploading(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	src := make([]byte, 8*mib)
	for range 20 {
		gpu := must(cudaalloc.Open(0, m.Driver()))
		var wg sync.WaitGroup
		for range 3 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				s, err := gpu.NewStream()
				if err != nil {
					return
				}
				mem, err := gpu.Allocate(background, 8*mib, s)
				if err != nil {
					return
				}
				for !gpu.Gone() {
					e, err := gpu.Upload(background, []device.Range{{Dst: mem.Ptr(), Src: address(src), Size: 8 * mib}}, s)
					if err == nil {
						_ = e.Close()
					}
				}
				_ = mem.Free(s)
				_ = s.Close()
			}()
		}
		time.Sleep(20 * time.Millisecond)
		m.ResetPrimary(t, 0)
		_ = must(cudaalloc.Open(0, m.Driver()))
		within(t, "uploads", func() error { wg.Wait(); return nil })
	}
}

// What was allocated when the context was reset is counted no more once it is freed.
func TestRule9StatsAfterReset(t *testing.T) {
	for _, o := range []cudasim.Options{{}, {NoPools: true}} {
		m := cudatest.Simulated(t, o)
		gpu := m.GPUs[0]
		s := must(gpu.NewStream())
		for _, d := range kinds(gpu) {
			mem := must(d.Allocate(background, 5000, s))
			defer func() {
				err := mem.Free(s)
				time.Sleep(300 * time.Millisecond)
				st := gpu.Stats()
				t.Logf("%s: Free: %v: %+v", d.ID(), err, st)
				if u := map[device.Type]cudaalloc.Usage{device.CUDA: st.Device, device.CUDAHost: st.Host, device.CUDAManaged: st.Managed}[d.ID().Type]; u.Live != 0 || st.Waiting != 0 || st.Lost != 0 {
					t.Errorf("STATS of %s: live %d, waiting %d, lost %d", d.ID(), u.Live, st.Waiting, st.Lost)
				}
			}()
		}
		m.ResetPrimary(t, 0)
	}
}
