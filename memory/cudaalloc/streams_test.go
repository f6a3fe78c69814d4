package cudaalloc_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Streams and events of another implementation.
type (
	theirStream struct{ device.Stream }
	theirEvent  struct{ device.Event }
)

// A stream or event of another implementation is used by its handle; no stream is the default stream.
func TestGPUOthersStreamsAndEvents(t *testing.T) {
	g := cudatest.OneGPU(t, cudasim.Options{Delay: 100 * time.Microsecond})
	const n = 100
	own, mem := g.Stream(), g.M.On(t, g.Pinned()).Ready(n)
	e := g.Event(own)
	for i, row := range []struct {
		given device.Stream
		on    *cudaalloc.Stream
	}{{theirStream{own}, own}, {(*cudaalloc.Stream)(nil), g.Legacy()}, {nil, g.Legacy()}} {
		g.Fill(mem.Ptr(), byte(i+1), n, row.given)
		require.NoError(t, row.on.Record(theirEvent{e}))
		require.NoError(t, g.PerThread().WaitEvent(theirEvent{e}))
		require.NoError(t, e.Synchronize(background))
		assert.Equal(t, n, bytes.Count(cudatest.At(mem.Ptr(), n), []byte{byte(i + 1)}))
	}
	require.NoError(t, mem.Free(theirStream{own}))
}

// Every function that takes a stream or an event, with those of every device. The second
// GPU's streams are legal CUDA; an event is recorded on its own GPU alone.
func TestStreamsAndEventsOfEveryDevice(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{Devices: 2})
	g, second := m.On(t, m.GPUs[0]), m.On(t, m.GPUs[1])
	stranger := cudatest.SimulatedGPU(t, cudasim.Options{})
	mem, from := m.On(t, g.Managed()).Memory(64, nil), m.On(t, g.Pinned()).Memory(64, nil)
	ranges := cudatest.Range(mem.Ptr(), from.Ptr(), 64)
	work := map[string]func(device.Stream) error{
		"Copy":            func(s device.Stream) error { return g.Copy(ranges, s) },
		"Copy of nothing": func(s device.Stream) error { return g.Copy(nil, s) },
		"Memset":          func(s device.Stream) error { return g.Memset(mem.Ptr(), 1, 64, s) },
		"Prefetch":        func(s device.Stream) error { return g.Prefetch(mem.Ptr(), 64, s) },
		"PrefetchToHost":  func(s device.Stream) error { return g.PrefetchToHost(mem.Ptr(), 64, s) },
		"Upload": func(s device.Stream) error {
			e, err := g.Upload(background, ranges, s)
			if err == nil {
				err = e.Close()
			}
			return err
		},
	}
	for _, d := range []*cudaalloc.Device{g.Device, g.Pinned(), g.Managed()} {
		work["Allocate "+d.ID().String()] = func(s device.Stream) error {
			memory, err := d.Allocate(background, 64, s)
			if err == nil {
				err = memory.Free(s)
			}
			return err
		}
		work["Free "+d.ID().String()] = func(s device.Stream) error { return m.On(t, d).Ready(64).Free(s) }
	}
	cpu := cudatest.NewStream(t, device.CPUDevice())
	const ofCPU, ofOther = "stream of cpu, want one of cuda", "stream of cuda:0 of another driver, want one of cuda"
	for call, do := range work {
		for of, row := range map[string]struct {
			s    device.Stream
			want string // "" accepts
		}{
			"nil":                       {nil, ""},
			"the GPU":                   {g.Stream(), ""},
			"the second GPU":            {second.Stream(), ""},
			"another's":                 {theirStream{g.Stream()}, ""},
			"the CPU":                   {cpu, ofCPU},
			"another driver":            {stranger.Stream(), ofOther},
			"another's, of the second":  {theirStream{second.Stream()}, "stream of cuda:1, want one of cuda"},
			"another's, of the CPU":     {theirStream{cpu}, ofCPU},
			"another's, another driver": {theirStream{stranger.Stream()}, ofOther},
		} {
			refused(t, do(row.s), row.want, "%s on a stream of %s", call, of)
			for _, d := range []cudatest.GPU{g, second, stranger} { // the next row uses the memory anew
				done := make(chan struct{})
				d.AfterWork(func() { close(done) })
				<-done
				require.NoError(t, d.Flush(background))
			}
		}
	}

	cpuEvent, err := device.CPUDevice().NewEvent()
	require.NoError(t, err)
	const otherDriver = "event of cuda:0 of another driver, want one of cuda:0"
	for of, row := range map[string]struct {
		e            device.Event
		record, wait string
	}{
		"the GPU":        {g.Event(g.Legacy()), "", ""},
		"page-locked":    {m.On(t, g.Pinned()).Event(g.Legacy()), "", ""},
		"another's":      {theirEvent{g.Event(g.Legacy())}, "", ""},
		"the second GPU": {second.Event(second.Legacy()), "event of cuda:1, want one of cuda:0", ""},
		"the CPU":        {cpuEvent, "want one of cuda:0", "want one of cuda:0"},
		"another driver": {stranger.Event(stranger.Legacy()), otherDriver, otherDriver},
		"nil":            {nil, "no event", "no event"},
		"a nil pointer":  {(*cudaalloc.Event)(nil), "no event", "no event"},
	} {
		refused(t, g.Legacy().Record(row.e), row.record, "Record with an event of %s", of)
		refused(t, g.Legacy().WaitEvent(row.e), row.wait, "WaitEvent with an event of %s", of)
	}
	var none *cudaalloc.Stream
	assert.Error(t, none.Record(g.Event(g.Legacy())))
	assert.Error(t, none.WaitEvent(g.Event(g.Legacy())))
}

// refused asserts that the error has the text, or that there is none if the text is empty.
func refused(t *testing.T, err error, want string, what ...any) {
	t.Helper()
	if want == "" {
		assert.NoError(t, err, what...)
	} else {
		assert.ErrorContains(t, err, want, what...)
	}
}
