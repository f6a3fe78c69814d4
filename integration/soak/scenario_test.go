package soak

import (
	"runtime"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// scenario is a kind of round.
type scenario struct {
	name   string
	weight int
	do     func(*worker)
}

func scenarios() []scenario {
	return []scenario{
		{"copies", 18, copies},
		{"device memory exported", 4, exportDevice},
		{"page-locked or managed memory exported", 4, exportHost},
		{"own work on a batch", 4, ownWork},
		{"arrays over own memory", 4, ownMemory},
		{"callbacks", 3, callbacks},
		{"cancelled calls", 8, cancelledCalls},
		{"cancelled allocations", 3, cancelledAllocations},
		{"stream held back", 1, heldBack},
		{"stream captured", 1, captured},
		{"readers", 2, readers},
		{"asynchronous streams", 2, asyncStreams},
		{"flush and trim", 1, flushAndTrim},
	}
}

// draw is a scenario at random, by their weights.
func (w *worker) draw() scenario {
	sum := 0
	for _, s := range w.plan.all {
		sum += s.weight
	}
	n := w.IntN(sum)
	for _, s := range w.plan.all {
		if n -= s.weight; n < 0 {
			return s
		}
	}
	panic("unreachable")
}

// gpu is a GPU at random.
func (w *worker) gpu() *cudaalloc.Device { return w.GPUs[w.IntN(len(w.GPUs))] }

// other is the other GPU.
func (w *worker) other(gpu *cudaalloc.Device) *cudaalloc.Device {
	return w.GPUs[1-gpu.ID().Ordinal]
}

// stream returns a new stream, closed when the round ends, after the round's releases.
func (w *worker) stream(gpu *cudaalloc.Device) device.Stream {
	s := got[device.Stream](w)(gpu.NewStream())
	w.Cleanup(func() { w.ok(s.Close()) })
	return s
}

// on is a choice of stream for a copy: usually none.
func (w *worker) on(gpu *cudaalloc.Device) []cdevice.CopyOption {
	switch w.IntN(12) {
	case 0:
		w.did("on the per-thread stream")
		runtime.LockOSThread() // the stream is this thread's
		w.Cleanup(runtime.UnlockOSThread)
		return []cdevice.CopyOption{cdevice.WithStream(gpu.PerThread())}
	case 1, 2:
		w.did("on the legacy stream")
		return []cdevice.CopyOption{cdevice.WithStream(gpu.Legacy())}
	case 3, 4, 5, 6:
		w.did("on a stream of its own")
		return []cdevice.CopyOption{cdevice.WithStream(w.stream(gpu))}
	}
	return nil
}

// keep releases a batch when the round ends, or when the returned function is called.
func (w *worker) keep(b *cdevice.RecordBatch) (release func()) { return w.later(b.Release) }
