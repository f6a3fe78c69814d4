package attack_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// Captures begin and end while other goroutines use all of the library.
func TestRule2CapturesAmongWork(t *testing.T) {
	each(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		for mode, name := range map[int]string{cudatest.Global: "global", cudatest.ThreadLocal: "thread", cudatest.Relaxed: "relaxed"} {
			for _, which := range []string{"own", "blocking", "held stranger"} {
				t.Run(name+" "+which, func(t *testing.T) {
					var stop atomic.Bool
					var wg sync.WaitGroup
					errs := map[string]int{}
					var mu sync.Mutex
					note := func(what string, err error) {
						if err != nil {
							mu.Lock()
							errs[what+": "+err.Error()]++
							mu.Unlock()
						}
					}
					col := ints(1000)
					defer col.Release()
					work := map[string]func(){
						"afterwork": func() { gpu.AfterWork(func() {}); pause(200 * time.Microsecond) },
						"memory": func() {
							s, err := gpu.NewStream()
							note("NewStream", err)
							if err != nil {
								return
							}
							for _, d := range kinds(gpu) {
								mem, err := d.Allocate(background, 5000, s)
								note("Allocate", err)
								if err == nil {
									note("Memset", gpu.Memset(mem.Ptr(), 1, 5000, s))
									note("Free", mem.Free(s))
								}
							}
							note("sync", s.Synchronize(background))
							note("Close", s.Close())
						},
						"copy": func() {
							a, err := cdevice.CopyArrayToDevice(background, col, gpu)
							note("copyto", err)
							if err != nil {
								return
							}
							h, err := a.CopyToHost(background, nil)
							note("tohost", err)
							if err == nil {
								h.Release()
							}
							a.Release()
						},
						"trim": func() {
							ctx, cancel := context.WithTimeout(background, 2*time.Millisecond)
							_ = gpu.Trim(ctx)
							cancel()
							pause(time.Millisecond)
						},
						"limits": func() {
							l := gpu.Limits()
							l.IdleAfter = time.Millisecond
							l.HostIdle = 100000
							_ = gpu.SetLimits(l)
							b := make([]byte, 8192)
							r, err := hostpinned.Register(gpu, b)
							if err == nil {
								ctx, cancel := context.WithTimeout(background, 2*time.Millisecond)
								if r.Unregister(ctx) != nil {
									for range 200 {
										if r.Unregister(background) == nil {
											break
										}
									}
								}
								cancel()
							}
							pause(time.Millisecond)
						},
						"peek": func() {
							_, _, err := gpu.MemoryInfo()
							note("info", err)
							_, _ = gpu.Lookup(4096)
							pause(time.Millisecond)
						},
					}
					if which != "held stranger" {
						for name, f := range work {
							if only := os.Getenv("ONLY"); only != "" && !strings.Contains(only, name) {
								continue
							}
							wg.Add(1)
							go func() {
								defer wg.Done()
								for !stop.Load() {
									f()
								}
							}()
						}
					} else {
						for _, k := range []string{"afterwork", "trim", "peek"} {
							f := work[k]
							wg.Add(1)
							go func() {
								defer wg.Done()
								for !stop.Load() {
									f()
								}
							}()
						}
					}
					var s device.Stream
					switch which {
					case "own":
						s = stream(t, gpu)
					case "blocking":
						s = m.BlockingStream(t, gpu)
					default:
						var err error
						s, err = gpu.WrapStream(m.Stranger(t, gpu).Handle)
						require.NoError(t, err)
					}
					target, err := gpu.Allocate(background, 4096, nil)
					require.NoError(t, err)
					bad, n := 0, 0
					first := ""
					for end := time.Now().Add(400 * time.Millisecond); time.Now().Before(end); {
						release := func() {}
						if which == "held stranger" {
							ctx, cancel := context.WithTimeout(background, 5*time.Second)
							release, err = gpu.HoldSynchronization(ctx)
							cancel()
							require.NoError(t, err)
						}
						n++
						finish, err := m.TryCapture(s, mode)
						if err != nil {
							bad++
							first = "begin: " + err.Error()
						} else {
							_ = gpu.Memset(target.Ptr(), 1, 4096, s)
							pause(500 * time.Microsecond)
							if err := gpu.Memset(target.Ptr(), 1, 4096, s); err != nil {
								first = "memset: " + err.Error()
							}
							if err := finish(); err != nil {
								bad++
								first = "end: " + err.Error()
							}
						}
						release()
						pause(200 * time.Microsecond)
					}
					stop.Store(true)
					if !in(8*time.Second, wg.Wait) {
						t.Errorf("workers are stuck: %s", stacks())
					}
					if bad > 0 {
						t.Errorf("%d of %d captures: %s", bad, n, first)
					}
					t.Log(n, "captures")
					for k, v := range errs {
						t.Log(v, k)
					}
					_ = target.Free(nil)
				})
			}
		}
	})
}

// A program captures a stream of the library, or a blocking one, while AfterWork is used.
// Nothing else runs.
func TestRule2CaptureBesideAfterWork(t *testing.T) {
	for _, which := range []string{"own", "blocking"} {
		t.Run(which, func(t *testing.T) {
			m := cudatest.Simulated(t, cudasim.Options{Delay: 200 * time.Microsecond})
			gpu := m.GPUs[0]
			s := stream(t, gpu)
			if which == "blocking" {
				s = m.BlockingStream(t, gpu)
			}
			bad := 0
			const n = 3000
			for range n {
				gpu.AfterWork(func() {})
				pause(100 * time.Microsecond)
				end, err := m.TryCapture(s, cudatest.Relaxed)
				require.NoError(t, err)
				pause(20 * time.Microsecond)
				if end() != nil {
					bad++
				}
			}
			if bad > 0 {
				t.Errorf("%d of %d captures were invalidated", bad, n)
			}
		})
	}
}
