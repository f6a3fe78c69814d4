package attack_test

import (
	"context"
	"fmt"
	"runtime"
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

func within(t *testing.T, what string, f func() error) {
	t.Helper()
	var err error
	start := time.Now()
	if !in(5*time.Second, func() { err = f() }) {
		t.Errorf("STUCK: %s", what)
		return
	}
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if d := time.Since(start); d > time.Second {
		t.Logf("SLOW: %s took %s", what, d)
	}
}

func eventually(t *testing.T, what string, f func() bool) bool {
	t.Helper()
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if f() {
			return true
		}
	}
	t.Errorf("NEVER: %s", what)
	return false
}

// everything uses all that does not need a stuck stream.
func everything(t *testing.T, gpu *cudaalloc.Device, rounds int) {
	col := texts(3000)
	defer col.Release()
	for i := range rounds {
		for _, d := range kinds(gpu) {
			for _, size := range []int64{0, 100, 100_000, 3 * mib} {
				var s device.Stream
				within(t, "NewStream", func() (err error) { s, err = d.NewStream(); return })
				var mem device.Memory
				within(t, fmt.Sprint("Allocate ", d.ID(), size), func() (err error) { mem, err = d.Allocate(background, size, s); return })
				if mem == nil {
					return
				}
				within(t, "Memset", func() error { return d.Memset(mem.Ptr(), 1, size, s) })
				var e device.Event
				within(t, "NewEvent", func() (err error) { e, err = d.NewEvent(); return })
				within(t, "Record", func() error { return s.Record(e) })
				called := make(chan struct{})
				within(t, "OnComplete", func() error { e.OnComplete(func() { close(called) }); return nil })
				if i%2 == 0 {
					within(t, "FreeAfter", func() error { return mem.FreeAfter(e) })
				} else {
					within(t, "Free", func() error { return mem.Free(s) })
				}
				within(t, "called", func() error { <-called; return nil })
				within(t, "Sync", func() error { return s.Synchronize(background) })
				within(t, "Close", func() error { _ = e.Close(); return s.Close() })
				within(t, "AfterWork", func() error { d.AfterWork(func() {}); return nil })
			}
		}
		within(t, "AllocateHost", func() error {
			m, err := gpu.AllocateHost(background, 70_000)
			if err != nil {
				return err
			}
			return m.Free(nil)
		})
		var a *cdevice.Array
		within(t, "CopyToDevice", func() (err error) { a, err = cdevice.CopyArrayToDevice(background, col, gpu); return })
		var h arrow.Array
		within(t, "CopyToHost", func() (err error) { h, err = a.CopyToHost(background, nil); return })
		h.Release()
		within(t, "hostpinned CopyToHost", func() (err error) { h, err = a.CopyToHost(background, hostpinned.New(gpu, 0)); return })
		h.Release()
		within(t, "NumBytes", func() (err error) { _, err = a.NumBytes(background); return })
		within(t, "Release", func() error { a.Release(); return nil })
		within(t, "SetLimits", func() error {
			l := gpu.Limits()
			l.HostIdle, l.ManagedIdle, l.DeviceIdle = 0, 0, 0
			if err := gpu.SetLimits(l); err != nil {
				return err
			}
			return gpu.SetLimits(cudaalloc.DefaultLimits())
		})
		within(t, "Lookup", func() error { _, _, _ = gpu.MemoryInfo(); _, err := gpu.Lookup(4096); return err })
		within(t, "Stats", func() error { gpu.Stats(); gpu.PageLocked(4096, 1); return nil })
	}
}

func stuckMachines() map[string]cudasim.Options {
	return map[string]cudasim.Options{"pools": {}, "no pools": {NoPools: true, Delay: 50 * time.Microsecond}, "lazy": {Lazy: true, PageableAsync: true}}
}

func TestRule3StuckStreams(t *testing.T) {
	for name, o := range stuckMachines() {
		for _, what := range []string{"own with waiting frees", "stranger with AfterWork", "blocking? no: own with pageable wait", "40 waits"} {
			t.Run(name+" "+what, func(t *testing.T) {
				m := cudatest.Simulated(t, o)
				gpu := m.GPUs[0]
				var open func()
				var wg sync.WaitGroup
				switch what {
				case "own with waiting frees":
					s := stream(t, gpu)
					open = m.Hold(t, s)
					for _, d := range kinds(gpu) {
						for range 30 {
							mem, err := d.Allocate(background, 10_000, s)
							require.NoError(t, err)
							require.NoError(t, d.Memset(mem.Ptr(), 1, 10_000, s))
							require.NoError(t, mem.Free(s))
						}
					}
					gpu.AfterWork(func() {})
				case "stranger with AfterWork":
					st := m.Stranger(t, gpu)
					open = st.Hold(t)
					for range 100 {
						mem, err := gpu.Host().Allocate(background, 10_000, nil)
						require.NoError(t, err)
						require.NoError(t, st.Memset(mem.Ptr(), 1, 10_000))
						gpu.AfterWork(func() { _ = mem.FreeAfter(nil) })
					}
				case "40 waits":
					s := stream(t, gpu)
					open = m.Hold(t, s)
					mem, err := gpu.Allocate(background, 100, s)
					require.NoError(t, err)
					e := event(t, s)
					for i := range 400 {
						wg.Add(1)
						go func() {
							defer wg.Done()
							if i%2 == 0 {
								_ = e.Synchronize(background)
							} else {
								_ = s.Synchronize(background)
							}
						}()
					}
					time.Sleep(20 * time.Millisecond)
					defer func() { _ = mem.Free(s); _ = e.Close() }()
				default:
					s := stream(t, gpu)
					open = m.Hold(t, s)
					col := ints(3000)
					defer col.Release()
					a, err := cdevice.CopyArrayToDevice(background, col, gpu, cdevice.OnStream(s))
					require.NoError(t, err)
					for range 50 {
						wg.Add(1)
						go func() {
							defer wg.Done()
							h, err := a.CopyToHost(background, nil)
							if err == nil {
								h.Release()
							}
							h, err = a.CopyToHost(background, hostpinned.New(gpu, 0))
							if err == nil {
								h.Release()
							}
						}()
					}
					time.Sleep(20 * time.Millisecond)
					defer a.Release()
				}
				everything(t, gpu, 4)
				open()
				within(t, "waits", func() error { wg.Wait(); return nil })
				within(t, "Flush", func() error { return gpu.Flush(background) })
			})
		}
	}
}

// Callbacks that block hold up nothing.
func TestRule3BlockedCallbacks(t *testing.T) {
	for name, o := range stuckMachines() {
		for _, n := range []int{1, 20} {
			for _, way := range []string{"AfterWork", "OnComplete", "Owner", "mixed"} {
				t.Run(fmt.Sprint(name, n, way), func(t *testing.T) {
					m := cudatest.Simulated(t, o)
					gpu := m.GPUs[0]
					gate := make(chan struct{})
					var ran atomic.Int64
					s := stream(t, gpu)
					var batches []*cdevice.Array
					for i := range n {
						f := func() { <-gate; ran.Add(1) }
						w := way
						if way == "mixed" {
							w = []string{"AfterWork", "OnComplete", "panic", "goexit"}[i%4]
						}
						switch w {
						case "AfterWork":
							gpu.AfterWork(f)
						case "panic":
							gpu.AfterWork(func() { ran.Add(1); panic("p") })
						case "goexit":
							gpu.AfterWork(func() { ran.Add(1); runtime.Goexit() })
						case "OnComplete":
							open := func() {}
							if i < 2 {
								open = m.Hold(t, s)
							}
							mem, err := gpu.Allocate(background, 100, s)
							require.NoError(t, err)
							require.NoError(t, gpu.Memset(mem.Ptr(), 1, 100, s))
							require.NoError(t, mem.Free(s))
							e := event(t, s)
							go func() { e.OnComplete(f); _ = e.Close() }()
							open()
						case "Owner":
							a, err := cdevice.NewArray(gpu, arrow.PrimitiveTypes.Int64, cdevice.Data{Length: 0, Buffers: []device.Ptr{0, 0}}, cdevice.Owner{Release: f})
							require.NoError(t, err)
							require.NoError(t, a.UsedOn(s))
							batches = append(batches, a)
						}
					}
					for _, b := range batches {
						within(t, "Release", func() error { go b.Release(); return nil })
					}
					time.Sleep(10 * time.Millisecond)
					everything(t, gpu, 2)
					// A function of AfterWork runs although all others block.
					done := make(chan struct{})
					gpu.AfterWork(func() { close(done) })
					within(t, "another AfterWork", func() error { <-done; return nil })
					h, err := gpu.Host().Allocate(background, 1000, nil)
					require.NoError(t, err)
					var given atomic.Bool
					gpu.AfterWork(func() { _ = h.FreeAfter(nil); given.Store(true) })
					eventually(t, "free by AfterWork", given.Load)
					t.Log("threads", threads(), "goroutines", runtime.NumGoroutine())
					close(gate)
					within(t, "Flush", func() error { return gpu.Flush(background) })
					eventually(t, "all ran", func() bool { return ran.Load() == int64(n) })
				})
			}
		}
	}
}

// Callbacks call back.
func TestRule3CallbacksCallBack(t *testing.T) {
	each(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		col := ints(2000)
		defer col.Release()
		s := stream(t, gpu)
		var wg sync.WaitGroup
		start := func(f func()) {
			wg.Add(1)
			gpu.AfterWork(func() { defer wg.Done(); f() })
			e := event(t, s)
			wg.Add(1)
			e.OnComplete(func() { defer wg.Done(); _ = e.Close(); f() })
		}
		for range 30 {
			start(func() {
				for _, d := range kinds(gpu) {
					mem, err := d.Allocate(background, 5000, s)
					if err != nil {
						t.Error(err)
						return
					}
					_ = d.Memset(mem.Ptr(), 1, 5000, s)
					_ = mem.Free(s)
				}
			})
			start(func() {
				a, err := cdevice.CopyArrayToDevice(background, col, gpu)
				if err != nil {
					t.Error(err)
					return
				}
				h, err := a.CopyToHost(background, nil)
				if err != nil {
					t.Error(err)
				} else {
					h.Release()
				}
				gpu.AfterWork(a.Release)
			})
			start(func() {
				ctx, cancel := context.WithTimeout(background, 5*time.Millisecond)
				defer cancel()
				_ = gpu.Flush(ctx)
				_ = gpu.Trim(ctx)
				_ = gpu.SetLimits(gpu.Limits())
				gpu.Stats()
			})
			start(func() {
				ctx, cancel := context.WithTimeout(background, 5*time.Millisecond)
				defer cancel()
				release, err := gpu.HoldSynchronization(ctx)
				if err == nil {
					time.Sleep(100 * time.Microsecond)
					release()
					release()
				}
			})
			wg.Add(2)
			gpu.AfterWork(func() { defer wg.Done(); panic("on purpose") })
			gpu.AfterWork(func() { defer wg.Done(); runtime.Goexit() })
		}
		within(t, "callbacks", func() error { wg.Wait(); return nil })
		within(t, "Flush", func() error { return gpu.Flush(background) })
	})
}

// A function of AfterWork may block: no other function waits for it, however many block.
func TestRule3ManyBlockedCallbacks(t *testing.T) {
	for _, n := range []int{16, 32, 64, 128, 256, 1024, 4096} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			m := cudatest.Simulated(t, cudasim.Options{Delay: 100 * time.Microsecond})
			gpu := m.GPUs[0]
			s := stream(t, gpu)
			gate := make(chan struct{})
			for range n {
				gpu.AfterWork(func() { <-gate })
				mem := must(gpu.Allocate(background, 100, s))
				_ = gpu.Memset(mem.Ptr(), 1, 100, s)
				_ = mem.Free(s)
			}
			time.Sleep(50 * time.Millisecond)
			var a, b, c atomic.Bool
			mem := must(gpu.Allocate(background, 100, s))
			_ = gpu.Memset(mem.Ptr(), 1, 100, s)
			_ = mem.Free(s)
			e := event(t, s)
			e.OnComplete(func() { a.Store(true) })
			gpu.AfterWork(func() { b.Store(true) })
			h := must(gpu.Host().Allocate(background, 100, s))
			_ = gpu.Memset(h.Ptr(), 1, 100, s)
			base := gpu.Stats().WaitingBytes
			_ = h.Free(s)
			go func() { _ = s.Synchronize(background); c.Store(true) }()
			time.Sleep(500 * time.Millisecond)
			if !a.Load() {
				t.Errorf("OnComplete waits behind %d blocked functions", n)
			}
			if !b.Load() {
				t.Errorf("AfterWork waits behind %d blocked functions", n)
			}
			if gpu.Stats().WaitingBytes > base {
				t.Errorf("a free waits behind %d blocked functions", n)
			}
			t.Log("threads", threads(), "goroutines", runtime.NumGoroutine())
			close(gate)
			_ = e.Close()
			within(t, "Flush", func() error { return gpu.Flush(background) })
			if !a.Load() || !b.Load() {
				t.Errorf("LOST")
			}
		})
	}
}

// A function that panics is logged and counted, whether or not its event is complete.
func TestRule3PanicOfOnComplete(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	s := stream(t, gpu)
	e := event(t, s)
	require.NoError(t, e.Synchronize(background))
	defer func() { _ = e.Close() }()
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("the panic of f comes out of OnComplete: %v", r)
		}
	}()
	e.OnComplete(func() { panic("on purpose") })
}
