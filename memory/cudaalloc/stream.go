package cudaalloc

import (
	"context"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// Stream is a CUstream: a device.Stream.
type Stream struct {
	handle
	// apart reports that no work on the stream, nor work that it waits for, can write host memory:
	// it is of CopyStream, and has been used for nothing else yet.
	apart atomic.Bool
}

// writesHost notes that work on the stream may write host memory.
func writesHost(s device.Stream) {
	if own, ok := s.(*Stream); ok && own != nil {
		own.apart.Store(false)
	}
}

// isApart reports whether host memory can be read now as well as in the order of the stream.
func isApart(s device.Stream) bool {
	own, ok := s.(*Stream)
	return ok && own != nil && own.apart.Load()
}

// NewStream returns an owned stream of usual priority, which is not ordered with the
// legacy default stream (CU_STREAM_NON_BLOCKING).
func (d *Device) NewStream() (device.Stream, error) {
	s, err := d.NewStreamWithPriority(0)
	if err != nil {
		return nil, err // and no *Stream in an interface that is not nil
	}
	return s, nil
}

// NewStreamWithPriority returns an owned stream like NewStream; see [Device.Priorities].
// The driver takes a number out of range as the nearest one in it.
func (d *Device) NewStreamWithPriority(priority int) (*Stream, error) {
	h, err := d.ctx.NewStream(priority)
	if err != nil {
		return nil, err
	}
	return d.owned(h, func() error { return d.ctx.FreeStream(h) }), nil
}

// Priorities returns the least and the greatest priority of streams on this GPU: the
// greater, the smaller the number (0 and -5, say).
func (d *Device) Priorities() (least, greatest int, err error) { return d.ctx.Priorities() }

// WrapStream borrows a CUstream (or cudaStream_t) of this GPU that another library
// owns, and that lives for as long as it is used here. 0 is the legacy default stream.
func (d *Device) WrapStream(handle uintptr) (device.Stream, error) { return d.borrow(handle), nil }

// Legacy borrows the legacy default stream, which is ordered with all streams of
// the context that are not CU_STREAM_NON_BLOCKING.
func (d *Device) Legacy() *Stream { return d.borrow(cuda.LegacyStream) }

// PerThread borrows the per-thread default stream: at each call, that of the OS
// thread that makes the call. A goroutine that uses it calls runtime.LockOSThread.
func (d *Device) PerThread() *Stream { return d.borrow(cuda.PerThreadStream) }

func (d *Device) borrow(h uintptr) *Stream {
	return &Stream{handle: handle{gpu: d.gpu, kind: "stream", word: h}}
}

// on is the context and the handle of the stream that work goes to: work runs in
// the context of its stream, even if that is another GPU's. A stream of the CPU, or of
// another driver, is an error: no order of work is known across drivers.
func (d *Device) on(s device.Stream) (*cuda.Context, uintptr, error) {
	switch s := s.(type) {
	case nil:
		return d.ctx, 0, nil
	case *Stream:
		if s == nil {
			return d.ctx, 0, nil
		}
		if s.gpu.platform != d.platform {
			return nil, 0, d.foreign("stream", s.Device())
		}
		return s.gpu.ctx, s.word, s.usable()
	}
	if isNilPointer(s) {
		return nil, 0, errNoStream
	}
	// Another implementation's stream, which stands for one of this GPU.
	if of, ok := s.Device().(interface{ Own() *Device }); !ok || of.Own() != d.own {
		return nil, 0, d.foreign("stream", s.Device())
	}
	return d.ctx, s.Handle(), nil
}

// gpuOf is the GPU whose stream it is: that of the context which on returns.
func (d *Device) gpuOf(s device.Stream) *gpu {
	if own, ok := s.(*Stream); ok && own != nil {
		return own.gpu
	}
	return d.gpu
}

// Closed reports whether Close was called.
func (s *Stream) Closed() bool { return s.usable() != nil }

// Device returns the GPU that runs the work of the stream.
func (s *Stream) Device() device.Device { return s.gpu.own }

// Record makes e complete once all work on this stream so far is done. The event
// is of the same GPU.
func (s *Stream) Record(e device.Event) error {
	h, err := s.eventFor(e)
	if err != nil {
		return err
	}
	if own, ok := e.(*Event); ok && own.gpu != s.gpu {
		return s.gpu.own.foreign("event", own.gpu.own)
	}
	return s.gpu.ctx.Record(h, s.word)
}

// AfterWork calls f after the work already enqueued on this stream has completed: on this goroutine,
// if it has, or later on one of this package. What f may do is said of [Device.AfterWork].
//
// An event is recorded on the stream for that, unless the stream is closed, is being captured or is
// that of [Device.PerThread]: then f is called by Device.AfterWork.
func (s *Stream) AfterWork(f func()) {
	if f == nil {
		panic(absent("AfterWork", "f", "a function"))
	}
	s.afterWork(&deferral{call: f})
}

func (s *Stream) afterWork(one *deferral) {
	after := s.mark()
	if after == nil {
		s.gpu.own.afterWork(one)
		return
	}
	one.giveBack(s.gpu)
	if done, err := after.reached(one.key); done && err == nil {
		after.letGo()
		one.run(s.gpu, func() {})
		return
	}
	one.after = after
	s.gpu.deferred.add(s.gpu, one)
}

// mark returns an event behind the work on the stream so far, which the caller holds; nil if none can
// be recorded without harm. The stream is not ended meanwhile: another goroutine may close it.
func (s *Stream) mark() *sharedEvent {
	stream := s.word
	if stream == cuda.PerThreadStream || s.startWait() != nil {
		return nil
	}
	defer s.endWait()
	// An event that is recorded in a capture never completes, and asking for it invalidates the capture.
	if busy, err := s.gpu.ctx.Capturing([]uintptr{stream}); busy || err != nil {
		return nil
	}
	after, err := record(s.gpu, stream)
	if err != nil {
		return nil
	}
	return after
}

// WaitEvent makes work enqueued from now on wait for the latest record of e, which
// may be an event of another GPU.
func (s *Stream) WaitEvent(e device.Event) error {
	h, err := s.eventFor(e)
	if err != nil {
		return err
	}
	s.apart.Store(false)
	return s.gpu.ctx.WaitEvent(s.word, h)
}

// Query reports whether all work enqueued so far has completed. It does not wait.
func (s *Stream) Query() (bool, error) {
	if err := s.usable(); err != nil {
		return false, err
	}
	return s.gpu.ctx.QueryStream(s.word)
}

// Synchronize waits until all work enqueued so far has completed, or ctx is done.
//
// With a context that can end, the driver is polled on this goroutine, at growing intervals
// of at most a millisecond. With any other context the call blocks in the driver, where the
// flags of the primary context decide whether it spins; at most 64 such waits block at a
// time, the others poll as well.
func (s *Stream) Synchronize(ctx context.Context) error {
	return s.wait(ctx, s.Query, func() error { return s.gpu.ctx.SynchronizeStream(s.word) })
}
