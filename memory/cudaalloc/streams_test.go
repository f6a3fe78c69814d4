package cudaalloc_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Every function that takes a stream or an event, with those of every device. The second
// GPU's streams are legal CUDA; an event is recorded on its own GPU alone.
func TestStreamsAndEventsOfEveryDevice(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	gpu, second := m.GPUs[0], m.GPUs[1]
	stranger := cudatest.Simulated(t, cudasim.Options{}).GPUs[0]
	mem, err := gpu.Managed().Allocate(background, 64, nil)
	require.NoError(t, err)
	from, err := gpu.Pinned().Allocate(background, 64, nil)
	require.NoError(t, err)
	ranges := []device.Range{{Dst: mem.Ptr(), Src: from.Ptr(), Size: 64}}
	allocate := func(d device.Device) func(device.Stream) error {
		return func(s device.Stream) error {
			memory, err := d.Allocate(background, 64, s)
			if err == nil {
				err = memory.Free(s)
			}
			return err
		}
	}
	free := func(d device.Device) func(device.Stream) error {
		return func(s device.Stream) error {
			memory, err := d.Allocate(background, 64, nil)
			require.NoError(t, err)
			require.NoError(t, gpu.Legacy().Synchronize(background))
			return memory.Free(s)
		}
	}
	work := map[string]func(device.Stream) error{
		"Allocate":             allocate(gpu),
		"Allocate page-locked": allocate(gpu.Pinned()),
		"Allocate managed":     allocate(gpu.Managed()),
		"Free":                 free(gpu),
		"Free page-locked":     free(gpu.Pinned()),
		"Free managed":         free(gpu.Managed()),
		"Copy":                 func(s device.Stream) error { return gpu.Copy(ranges, s) },
		"Copy of nothing":      func(s device.Stream) error { return gpu.Copy(nil, s) },
		"Memset":               func(s device.Stream) error { return gpu.Memset(mem.Ptr(), 1, 64, s) },
		"Prefetch":             func(s device.Stream) error { return gpu.Prefetch(mem.Ptr(), 64, s) },
		"PrefetchToHost":       func(s device.Stream) error { return gpu.PrefetchToHost(mem.Ptr(), 64, s) },
		"Upload": func(s device.Stream) error {
			e, err := gpu.Upload(background, ranges, s)
			if err == nil {
				err = e.Close()
			}
			return err
		},
	}
	stream := func(d device.Device) device.Stream {
		s, err := d.NewStream()
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, s.Close()) })
		return s
	}
	quiet := func() {
		for _, d := range []*cudaalloc.Device{gpu, second, stranger} {
			require.NoError(t, d.Flush(background))
			done := make(chan struct{})
			d.AfterWork(func() { close(done) })
			<-done
		}
	}
	for call, do := range work {
		for of, row := range map[string]struct {
			s    device.Stream
			want string // "" accepts
		}{
			"nil":                       {nil, ""},
			"the GPU":                   {stream(gpu), ""},
			"the second GPU":            {stream(second), ""},
			"another's":                 {theirStream{stream(gpu)}, ""},
			"the CPU":                   {stream(device.CPUDevice()), "stream of cpu, want one of cuda"},
			"another driver":            {stream(stranger), "stream of cuda:0 of another driver, want one of cuda"},
			"another's, of the second":  {theirStream{stream(second)}, "stream of cuda:1, want one of cuda"},
			"another's, of the CPU":     {theirStream{stream(device.CPUDevice())}, "stream of cpu, want one of cuda"},
			"another's, another driver": {theirStream{stream(stranger)}, "stream of cuda:0 of another driver, want one of cuda"},
		} {
			err := do(row.s)
			if row.want == "" {
				assert.NoError(t, err, "%s on a stream of %s", call, of)
			} else {
				assert.ErrorContains(t, err, row.want, "%s on a stream of %s", call, of)
			}
			quiet()
		}
	}

	event := func(d device.Device) device.Event {
		e, err := d.NewEvent()
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, e.Close()) })
		return e
	}
	for of, row := range map[string]struct {
		e            device.Event
		record, wait string
	}{
		"the GPU":        {event(gpu), "", ""},
		"page-locked":    {event(gpu.Pinned()), "", ""},
		"another's":      {theirEvent{event(gpu)}, "", ""},
		"the second GPU": {event(second), "event of cuda:1, want one of cuda:0", ""},
		"the CPU":        {event(device.CPUDevice()), "want one of cuda:0", "want one of cuda:0"},
		"another driver": {event(stranger), "event of cuda:0 of another driver, want one of cuda:0", "event of cuda:0 of another driver, want one of cuda:0"},
		"nil":            {nil, "no event", "no event"},
		"a nil pointer":  {(*cudaalloc.Event)(nil), "no event", "no event"},
	} {
		for call, check := range map[string]struct {
			do   func(device.Event) error
			want string
		}{"Record": {gpu.Legacy().Record, row.record}, "WaitEvent": {gpu.Legacy().WaitEvent, row.wait}} {
			err := check.do(row.e)
			if check.want == "" {
				assert.NoError(t, err, "%s with an event of %s", call, of)
			} else {
				assert.ErrorContains(t, err, check.want, "%s with an event of %s", call, of)
			}
		}
	}
	var none *cudaalloc.Stream
	assert.Error(t, none.Record(event(gpu)))
	assert.Error(t, none.WaitEvent(event(gpu)))

	quiet()
	require.NoError(t, mem.Free(nil))
	require.NoError(t, from.Free(nil))
}
