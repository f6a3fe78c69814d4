package attack_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

func ended(after time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(background, after)
}

func TestRule5NothingGrows(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	s := stream(t, gpu)
	mem, err := gpu.Host().Allocate(background, 1000, s)
	require.NoError(t, err)
	open := m.Hold(t, s)
	require.NoError(t, gpu.Memset(mem.Ptr(), 1, 1000, s))
	e := event(t, s)
	gpu.AfterWork(func() {})
	for what, f := range map[string]func(context.Context){
		"event":  func(ctx context.Context) { _ = e.Synchronize(ctx) },
		"stream": func(ctx context.Context) { _ = s.Synchronize(ctx) },
		"flush":  func(ctx context.Context) { _ = gpu.Flush(ctx) },
		"trim":   func(ctx context.Context) { _ = gpu.Trim(ctx) },
		"hold": func(ctx context.Context) {
			r, err := gpu.HoldSynchronization(ctx)
			if err == nil {
				r()
			}
		},
		"limits":     func(context.Context) { _ = gpu.SetLimits(gpu.Limits()) },
		"ontrimless": func(context.Context) { gpu.Stats() },
		"streams": func(context.Context) {
			s, err := gpu.NewStream()
			if err == nil {
				_ = s.Close()
			}
		},
		"copystreams": func(context.Context) {
			s, err := gpu.CopyStream()
			if err == nil {
				_ = s.Close()
			}
		},
		"events": func(context.Context) {
			e, err := gpu.NewEvent()
			if err == nil {
				_ = e.Close()
			}
		},
	} {
		run := func(n int) {
			var wg sync.WaitGroup
			for range 50 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for range n {
						ctx, cancel := ended(200 * time.Microsecond)
						f(ctx)
						cancel()
					}
				}()
			}
			if !in(60*time.Second, wg.Wait) {
				t.Errorf("STUCK %s", what)
			}
		}
		run(10)
		before, th, g := heap(), threads(), runtime.NumGoroutine()
		live := m.Sim.Report().Live
		run(100)
		time.Sleep(20 * time.Millisecond)
		grown := int64(heap()) - int64(before)
		after := m.Sim.Report().Live
		t.Logf("%s: heap %+d, threads %d -> %d, goroutines %d -> %d, live %+v -> %+v", what, grown, th, threads(), g, runtime.NumGoroutine(), live.Streams*1000+live.Events, after.Streams*1000+after.Events)
		if grown > 1<<20 || threads() > th+40 || runtime.NumGoroutine() > g+20 || after.Events > live.Events+100 || after.Streams > live.Streams+50 {
			t.Errorf("GROWS: %s", what)
		}
	}
	open()
	require.NoError(t, e.Close())
	require.NoError(t, mem.Free(s))
}

// Waits of contexts that cannot end, and that can.
func TestRule5Threads(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	s := stream(t, gpu)
	open := m.Hold(t, s)
	mem, err := gpu.Allocate(background, 100, s)
	require.NoError(t, err)
	require.NoError(t, gpu.Memset(mem.Ptr(), 1, 100, s))
	e := event(t, s)
	before := threads()
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(background)
	for i := range 3000 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			switch i % 5 {
			case 0:
				_ = e.Synchronize(background)
			case 1:
				_ = s.Synchronize(background)
			case 2:
				_ = e.Synchronize(ctx)
			case 3:
				_ = s.Synchronize(ctx)
			case 4:
				_ = gpu.Flush(background)
			}
		}()
	}
	time.Sleep(300 * time.Millisecond)
	t.Logf("threads %d -> %d", before, threads())
	if threads() > before+200 {
		t.Errorf("THREADS %d -> %d", before, threads())
	}
	cancel()
	open()
	if !in(10*time.Second, wg.Wait) {
		t.Errorf("STUCK")
	}
	_ = e.Close()
	_ = mem.Free(s)
}

func TestRule5OnComplete(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	s := stream(t, gpu)
	open := m.Hold(t, s)
	mem, err := gpu.Allocate(background, 100, s)
	require.NoError(t, err)
	require.NoError(t, gpu.Memset(mem.Ptr(), 1, 100, s))
	e := event(t, s)
	before, g := threads(), runtime.NumGoroutine()
	var wg sync.WaitGroup
	for range 20_000 {
		wg.Add(1)
		e.OnComplete(wg.Done)
	}
	t.Logf("threads %d -> %d, goroutines %d -> %d", before, threads(), g, runtime.NumGoroutine())
	open()
	if !in(10*time.Second, wg.Wait) {
		t.Errorf("STUCK")
	}
	_ = e.Close()
	_ = mem.Free(s)
	require.NoError(t, gpu.Flush(background))
	time.Sleep(50 * time.Millisecond)
	t.Logf("after: threads %d, goroutines %d", threads(), runtime.NumGoroutine())
}

var _ = cudaalloc.DefaultLimits
