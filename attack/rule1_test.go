package attack_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

type outcome struct{ bad []string }

func (o *outcome) add(format string, args ...any) {
	o.bad = append(o.bad, fmt.Sprintf(format, args...))
}

// round frees memory under pending work in one way, allocates again, and uses that.
func round(t testing.TB, m *cudatest.Machine, d *cudaalloc.Device, way string, fault func()) (bad []string) {
	o := &outcome{}
	lost := d.Stats().Lost
	const size = 100_000
	s, err := d.NewStream()
	require.NoError(t, err)
	other, err := d.NewStream()
	require.NoError(t, err)
	mem, err := d.Allocate(background, size, s)
	require.NoError(t, err)
	e, err := d.NewEvent()
	require.NoError(t, err)
	open := m.Hold(t, s)
	defer open()
	require.NoError(t, d.Memset(mem.Ptr(), 1, size, s))
	require.NoError(t, s.Record(e))
	fault()
	if !in(5*time.Second, func() {
		switch way {
		case "free":
			if err := mem.Free(s); err != nil {
				o.add("note Free: %v", err)
			}
		case "freeafter":
			if err := mem.FreeAfter(e); err != nil {
				o.add("note FreeAfter: %v", err)
			}
			_ = e.Close()
		case "afterwork":
			d.AfterWork(func() { _ = mem.FreeAfter(nil) })
		case "oncomplete":
			e.OnComplete(func() { _ = mem.FreeAfter(nil) })
			_ = e.Close()
		case "closed":
			_ = s.Close()
			if err := mem.FreeAfter(e); err != nil {
				o.add("note FreeAfter: %v", err)
			}
		}
	}) {
		o.add("STUCK in %s", way)
		m.Sim.Fail("", 0, 0)
		open()
		return o.bad
	}
	var again []device.Memory
	for range 4 {
		var next device.Memory
		if !in(5*time.Second, func() { next, err = d.Allocate(background, size, other) }) {
			o.add("STUCK in Allocate")
			break
		}
		if err != nil {
			continue
		}
		if d.ID().Type != device.CUDA {
			m.HostWrite(next.Ptr(), size)
		} else {
			_ = d.Memset(next.Ptr(), 2, size, other)
		}
		again = append(again, next)
	}
	time.Sleep(time.Millisecond)
	m.Sim.Fail("", 0, 0)
	open()
	_ = s.Synchronize(background)
	_ = other.Synchronize(background)
	for _, n := range again {
		if err := n.Free(other); err != nil {
			o.add("note free again: %v", err)
		}
	}
	_ = e.Close()
	_ = s.Close()
	_ = other.Close()
	if !in(5*time.Second, func() { err = d.Flush(background) }) {
		o.add("STUCK in Flush")
	}
	st := d.Stats()
	if st.Device.Live+st.Host.Live+st.Managed.Live+st.Waiting+st.WaitingBytes+st.Lost != 0 && st.Lost != lost || st.Waiting+st.WaitingBytes != 0 {
		o.add("LOST stats %+v", st)
	}
	if v := violations(m); v != "" {
		o.add("VIOLATION %s", v)
	}
	return o.bad
}

func TestRule1FaultsUnderPendingWork(t *testing.T) {
	functions := []string{"", "cuEventQuery", "cuEventRecord", "cuEventSynchronize", "cuStreamQuery", "cuCtxSynchronize", "cuMemFree", "cuMemFreeAsync",
		"cuMemFreeHost", "cuEventCreate", "cuEventDestroy", "cuStreamDestroy", "cuStreamIsCapturing", "cuStreamSynchronize", "cuStreamWaitEvent",
		"cuThreadExchangeStreamCaptureMode", "cuCtxPushCurrent", "cuCtxPopCurrent", "cuCtxSetCurrent", "cuCtxGetCurrent", "cuMemHostAlloc", "cuMemAlloc",
		"cuMemAllocManaged", "cuMemAllocFromPoolAsync", "cuStreamCreateWithPriority", "cuStreamGetCaptureInfo", "cuMemPoolTrimTo", "cuCtxGetId"}
	options := map[string]cudasim.Options{"pools": {}, "no pools": {NoPools: true}, "lazy": {Lazy: true}}
	for name, o := range options {
		for _, code := range []int{900, 901, 906, 999, 2} {
			t.Run(fmt.Sprint(name, code), func(t *testing.T) {
				m := cudatest.Simulated(t, o)
				seen := map[string]int{}
				for _, d := range kinds(m.GPUs[0]) {
					for _, way := range []string{"free", "freeafter", "afterwork", "oncomplete", "closed"} {
						for _, f := range functions {
							{
								for _, times := range []int{1, 40} {
									bad := round(t, m, d, way, func() { m.Sim.FailTimes(f, 1, times, code) })
									for _, b := range bad {
										if len(b) > 4 && b[:4] == "note" {
											continue
										}
										seen[b[:5]]++
										if seen[b[:5]] < 25 {
											t.Errorf("%s %s %s: %s x%d answers %d: %.500s", name, d.ID(), way, f, times, code, b)
										}
									}
								}
							}
						}
					}
				}
			})
		}
	}
}
