package attack_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// withContext are the functions with a context.
func withContext(t *testing.T, m *cudatest.Machine, gpu *cudaalloc.Device, s device.Stream, a *cdevice.Array, col arrow.Array) map[string]func(context.Context) error {
	pinned := hostpinned.New(gpu, 0)
	big := ints(2_000_000)
	t.Cleanup(big.Release)
	e := event(t, s)
	t.Cleanup(func() { _ = e.Close() })
	src := make([]byte, 40*mib)
	dst, err := gpu.Allocate(background, 40*mib, s)
	require.NoError(t, err)
	t.Cleanup(func() { _ = dst.Free(s) })
	all := map[string]func(context.Context) error{
		"Event.Synchronize":  e.Synchronize,
		"Stream.Synchronize": s.Synchronize,
		"Legacy.Synchronize": gpu.Legacy().Synchronize,
		"Flush":              gpu.Flush,
		"Trim":               gpu.Trim,
		"HoldSynchronization": func(ctx context.Context) error {
			r, err := gpu.HoldSynchronization(ctx)
			if err == nil {
				r()
			}
			return err
		},
		"Upload": func(ctx context.Context) error {
			e, err := gpu.Upload(ctx, []device.Range{{Dst: dst.Ptr(), Src: address(src), Size: 40 * mib}}, s)
			if err == nil {
				_ = e.Close()
			}
			return err
		},
		"AllocateHost": func(ctx context.Context) error {
			m, err := gpu.AllocateHost(ctx, 1000+rand.Int64N(3*mib))
			if err == nil {
				_ = m.Free(nil)
			}
			return err
		},
		"CopyArrayToDevice": func(ctx context.Context) error {
			a, err := cdevice.CopyArrayToDevice(ctx, col, gpu)
			if err == nil {
				a.Release()
			}
			return err
		},
		"CopyArrayToDevice big": func(ctx context.Context) error {
			a, err := cdevice.CopyArrayToDevice(ctx, big, gpu)
			if err == nil {
				a.Release()
			}
			return err
		},
		"CopyArrayToDevice on stream": func(ctx context.Context) error {
			a, err := cdevice.CopyArrayToDevice(ctx, col, gpu, cdevice.OnStream(s))
			if err == nil {
				a.Release()
			}
			return err
		},
		"CopyArrayToDevice host": func(ctx context.Context) error {
			a, err := cdevice.CopyArrayToDevice(ctx, col, gpu.Host())
			if err == nil {
				a.Release()
			}
			return err
		},
		"CopyArrayToDevice host on stream": func(ctx context.Context) error {
			a, err := cdevice.CopyArrayToDevice(ctx, col, gpu.Host(), cdevice.OnStream(s))
			if err == nil {
				a.Release()
			}
			return err
		},
		"CopyArrayToDevice managed on stream": func(ctx context.Context) error {
			a, err := cdevice.CopyArrayToDevice(ctx, col, gpu.Managed(), cdevice.OnStream(s))
			if err == nil {
				a.Release()
			}
			return err
		},
		"CopyTo pinned on stream": func(ctx context.Context) error {
			b, err := a.CopyTo(ctx, gpu.Host(), cdevice.OnStream(s))
			if err == nil {
				b.Release()
			}
			return err
		},
		"CopyTo other on its stream": func(ctx context.Context) error {
			o := m.GPUs[len(m.GPUs)-1]
			b, err := a.CopyTo(ctx, o, cdevice.OnStream(s))
			if err == nil {
				b.Release()
			}
			return err
		},
		"CopyToHost on legacy": func(ctx context.Context) error {
			b, err := a.CopyToHost(ctx, nil, cdevice.OnStream(gpu.Legacy()))
			if err == nil {
				b.Release()
			}
			return err
		},
		"CopyArrayToDevice managed": func(ctx context.Context) error {
			a, err := cdevice.CopyArrayToDevice(ctx, col, gpu.Managed())
			if err == nil {
				a.Release()
			}
			return err
		},
		"CopyTo": func(ctx context.Context) error {
			b, err := a.CopyTo(ctx, gpu)
			if err == nil {
				b.Release()
			}
			return err
		},
		"CopyTo slice": func(ctx context.Context) error {
			p, err := a.Slice(3, a.Len()-3)
			if err != nil {
				return err
			}
			defer p.Release()
			b, err := p.CopyTo(ctx, m.GPUs[len(m.GPUs)-1])
			if err == nil {
				b.Release()
			}
			return err
		},
		"CopyTo host": func(ctx context.Context) error {
			b, err := a.CopyTo(ctx, device.Host())
			if err == nil {
				b.Release()
			}
			return err
		},
		"CopyTo pinned": func(ctx context.Context) error {
			b, err := a.CopyTo(ctx, gpu.Host())
			if err == nil {
				b.Release()
			}
			return err
		},
		"CopyToHost": func(ctx context.Context) error {
			b, err := a.CopyToHost(ctx, nil)
			if err == nil {
				b.Release()
			}
			return err
		},
		"CopyToHost pinned": func(ctx context.Context) error {
			b, err := a.CopyToHost(ctx, pinned)
			if err == nil {
				b.Release()
			}
			return err
		},
		"CopyToHost on stream": func(ctx context.Context) error {
			b, err := a.CopyToHost(ctx, nil, cdevice.OnStream(s))
			if err == nil {
				b.Release()
			}
			return err
		},
		"Wait":     a.Wait,
		"NumBytes": func(ctx context.Context) error { _, err := a.NumBytes(ctx); return err },
		"CountNulls": func(ctx context.Context) error {
			p, _ := a.Slice(1, 1000)
			defer p.Release()
			_, err := p.CountNulls(ctx)
			return err
		},
		"ForCuDF": func(ctx context.Context) error {
			p, _ := a.Slice(3, 1000)
			defer p.Release()
			var out cdevice.CArrowDeviceArray
			err := cdevice.ExportArray(p, &out, nil, cdevice.ForCuDF(ctx))
			if err == nil {
				cdevice.ReleaseCArrowDeviceArray(&out)
			}
			return err
		},
		"Synchronized": func(ctx context.Context) error {
			var out cdevice.CArrowDeviceArray
			err := cdevice.ExportArray(a, &out, nil, cdevice.Synchronized(ctx))
			if err == nil {
				cdevice.ReleaseCArrowDeviceArray(&out)
			}
			return err
		},
		"ForHost": func(ctx context.Context) error {
			h, err := cdevice.CopyArrayToDevice(ctx, col, gpu.Host())
			if err != nil {
				return err
			}
			defer h.Release()
			var out cdevice.CArrowDeviceArray
			err = cdevice.ExportArray(h, &out, nil, cdevice.ForHost(ctx))
			if err == nil {
				cdevice.ReleaseCArrowDeviceArray(&out)
			}
			return err
		},
		"FullValidation": func(ctx context.Context) error {
			var out cdevice.CArrowDeviceArray
			if err := cdevice.ExportArray(a, &out, nil); err != nil {
				return err
			}
			b, err := cdevice.ImportArrayWithType(&out, a.DataType(), cdevice.WithDevice(gpu), cdevice.WithFullValidation(ctx))
			if err == nil {
				b.Release()
			}
			return err
		},
	}
	for _, d := range kinds(gpu) {
		for _, size := range []int64{1000, 5 * mib} {
			all[fmt.Sprint("Allocate ", d.ID(), " ", size)] = func(ctx context.Context) error {
				mem, err := d.Allocate(ctx, size, s)
				if err == nil {
					err = mem.Free(s)
				}
				return err
			}
		}
	}
	return all
}

// late calls f with a context that ends and returns how much later it returned.
func late(f func(context.Context) error, after time.Duration) (by time.Duration, stuck bool, wait func()) {
	ctx, cancel := context.WithTimeout(background, after)
	done := make(chan struct{})
	var end time.Time
	go func() { defer close(done); _ = f(ctx); end = time.Now() }()
	start := time.Now()
	select {
	case <-done:
		cancel()
		return end.Sub(start) - after, false, func() {}
	case <-time.After(2 * time.Second):
		return 2 * time.Second, true, func() { <-done; cancel() }
	}
}

func TestRule4Contexts(t *testing.T) {
	options := map[string]cudasim.Options{
		"pools": {}, "pageable async": {PageableAsync: true, Delay: 100 * time.Microsecond}, "two": {Devices: 2},
		"no pools": {NoPools: true}, "lazy": {Lazy: true}, "little": {Memory: 100 * mib, HostMemory: 100 * mib},
		"no pools, little":  {NoPools: true, Memory: 100 * mib, HostMemory: 100 * mib},
		"no managed access": {NoConcurrentManaged: true, NoPools: true},
	}
	for name, o := range options {
		for _, trouble := range []string{"none", "held stream", "paused", "full", "held stranger", "held blocking"} {
			t.Run(name+" "+trouble, func(t *testing.T) {
				m := cudatest.Simulated(t, o)
				gpu := m.GPUs[0]
				s := stream(t, gpu)
				col := texts(5000)
				defer col.Release()
				a, err := cdevice.CopyArrayToDevice(background, col, gpu, cdevice.OnStream(s))
				require.NoError(t, err)
				require.NoError(t, a.Wait(background))
				var begin func() (end func())
				switch trouble {
				case "none":
					begin = func() func() { return func() {} }
				case "held stream":
					a.Release()
					open := m.Hold(t, s)
					a, err = cdevice.CopyArrayToDevice(background, col, gpu, cdevice.OnStream(s))
					require.NoError(t, err)
					begin = func() func() { return open }
				case "paused":
					begin = func() func() { m.Sim.Pause(); return m.Sim.Resume }
				case "full":
					begin = func() func() {
						var all []device.Memory
						open := m.Hold(t, s)
						for _, d := range kinds(gpu) {
							for range 300 {
								ctx, cancel := context.WithTimeout(background, 5*time.Millisecond)
								mem, err := d.Allocate(ctx, 4*mib, s)
								cancel()
								if err != nil {
									break
								}
								all = append(all, mem)
								_ = d.Memset(mem.Ptr(), 1, 4*mib, s)
								_ = mem.Free(s)
								if len(all) > 200 {
									break
								}
							}
						}
						return open
					}
				case "held stranger":
					st := m.Stranger(t, gpu)
					begin = func() func() { open := st.Hold(t); gpu.AfterWork(func() {}); return open }
				case "held blocking":
					b := m.BlockingStream(t, gpu)
					begin = func() func() { return m.Hold(t, b) }
				}
				fs := withContext(t, m, gpu, s, a, col)
				end := begin()
				defer end()
				var waits []func()
				for what, f := range fs {
					worst := time.Duration(0)
					for i := range 8 {
						after := time.Duration(rand.Int64N(int64(5 * time.Millisecond)))
						if i == 0 {
							after = 0
						}
						if i == 1 {
							after = 30 * time.Millisecond
						}
						by, stuck, wait := late(f, after)
						worst = max(worst, by)
						if stuck {
							waits = append(waits, wait)
							break
						}
					}
					if worst > 150*time.Millisecond {
						t.Errorf("LATE: %s by %s", what, worst)
					}
				}
				end()
				a.Release()
				within(t, "the late", func() error {
					for _, w := range waits {
						w()
					}
					return nil
				})
				within(t, "Flush", func() error { return gpu.Flush(background) })
				if v := violations(m); v != "" {
					t.Errorf("VIOLATION %s", v)
				}
			})
		}
	}
}

// Contexts end at each call of the driver.
func TestRule4ContextsEndAtEachCall(t *testing.T) {
	for _, o := range []cudasim.Options{{Delay: 100 * time.Microsecond, PageableAsync: true}, {NoPools: true, Delay: 100 * time.Microsecond, Devices: 2}, {Lazy: true}} {
		m := cudatest.Simulated(t, o)
		gpu := m.GPUs[0]
		s := stream(t, gpu)
		col := texts(5000)
		a, err := cdevice.CopyArrayToDevice(background, col, gpu, cdevice.OnStream(s))
		require.NoError(t, err)
		fs := withContext(t, m, gpu, s, a, col)
		for what, f := range fs {
			before := m.Sim.Calls("")
			_ = f(background)
			n := min(m.Sim.Calls("")-before, 60)
			for k := 0; k <= n; k++ {
				ctx, cancel := context.WithCancel(background)
				target := m.Sim.Calls("") + k
				var stop atomic.Bool
				var wg sync.WaitGroup
				wg.Add(1)
				var ended time.Time
				go func() {
					defer wg.Done()
					for m.Sim.Calls("") < target && !stop.Load() {
					}
					ended = time.Now()
					cancel()
				}()
				if !in(3*time.Second, func() { _ = f(ctx) }) {
					t.Errorf("STUCK %s at %d", what, k)
				}
				returned := time.Now()
				stop.Store(true)
				wg.Wait()
				if d := returned.Sub(ended); d > 150*time.Millisecond {
					t.Errorf("LATE %s at %d: %s", what, k, d)
				}
			}
			if v := violations(m); v != "" {
				t.Errorf("VIOLATION %s: %s", what, v)
			}
		}
		a.Release()
		col.Release()
		within(t, "Flush", func() error { return gpu.Flush(background) })
	}
}

// A copy from the host's memory to page-locked or managed memory, on a stream that is stuck
// or on a machine that is, ends with its context.
func TestRule4CopyToHostMemoryOnAStuckStream(t *testing.T) {
	for _, trouble := range []string{"stream", "machine"} {
		t.Run(trouble, func(t *testing.T) {
			m := cudatest.Simulated(t, cudasim.Options{})
			gpu := m.GPUs[0]
			col := ints(1000)
			defer col.Release()
			for _, d := range kinds(gpu) {
				s := must(gpu.NewStream())
				opts := []cdevice.CopyOption{cdevice.OnStream(s)}
				open := func() {}
				if trouble == "stream" {
					open = m.Hold(t, s)
				} else {
					m.Sim.Pause()
					open, opts = m.Sim.Resume, nil
				}
				by, _, wait := late(func(ctx context.Context) error {
					a, err := cdevice.CopyArrayToDevice(ctx, col, d, opts...)
					if err == nil {
						a.Release()
					}
					return err
				}, 20*time.Millisecond)
				if by > 150*time.Millisecond {
					t.Errorf("LATE: CopyArrayToDevice(%s) by %s", d.ID(), by)
				}
				open()
				wait()
				_ = s.Close()
			}
		})
	}
}
