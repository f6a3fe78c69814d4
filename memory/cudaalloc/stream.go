package cudaalloc

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/gpu"
)

// Stream is a CUstream: a device.Stream.
type Stream struct {
	handle gpu.Handle
	dev    *Device // the GPU
	// apart reports that no work on the stream, nor work that it waits for, can write host memory:
	// it is of CopyStream, and has been used for nothing else yet.
	apart atomic.Bool
}

func (d *Device) newStream() *Stream { return &Stream{dev: d.Own()} }

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
	s := d.newStream()
	if err := d.gpu.Streams.New(&s.handle, priority); err != nil {
		return nil, err
	}
	return s, nil
}

// Priorities returns the least and the greatest priority of streams on this GPU: the
// greater, the smaller the number (0 and -5, say).
func (d *Device) Priorities() (least, greatest int, err error) { return d.gpu.Ctx.Priorities() }

// WrapStream borrows a CUstream (or cudaStream_t) of this GPU that another library
// owns, and that lives for as long as it is used here. 0 is the legacy default stream.
func (d *Device) WrapStream(handle uintptr) (device.Stream, error) { return d.borrow(handle), nil }

// CopyStream returns an owned stream for a copy for which the caller names none; the caller
// closes it once the copy is enqueued. It is not ordered with other streams, and nothing else is
// enqueued on it until it is closed: a copy that waits for an event delays no other copy. It is a
// closed one without pending work, or a new one.
func (d *Device) CopyStream() (device.Stream, error) {
	s := d.newStream()
	if err := d.gpu.Streams.NewForCopy(&s.handle); err != nil {
		return nil, err
	}
	s.apart.Store(true)
	return s, nil
}

// Legacy borrows the legacy default stream, which is ordered with all streams of
// the context that are not CU_STREAM_NON_BLOCKING.
func (d *Device) Legacy() *Stream { return d.borrow(cuda.LegacyStream) }

// PerThread borrows the per-thread default stream: at each call, that of the OS
// thread that makes the call. A goroutine that uses it calls runtime.LockOSThread.
func (d *Device) PerThread() *Stream { return d.borrow(cuda.PerThreadStream) }

func (d *Device) borrow(handle uintptr) *Stream {
	s := d.newStream()
	d.gpu.Streams.Borrow(&s.handle, handle)
	return s
}

// Handle returns the CUstream.
func (s *Stream) Handle() uintptr { return s.handle.Word() }

// Device returns the GPU that runs the work of the stream.
func (s *Stream) Device() device.Device { return s.dev }

// Close ends an owned stream once its work is done; it does not wait for that. A borrowed one is left to its
// owner, and can no longer be used through this value. Closing twice is allowed; every other use is an error
// that wraps [ErrClosed]. Where the driver fails, the error is returned, and the stream is ended later.
func (s *Stream) Close() error { return s.handle.Close() }

// Closed reports whether Close was called.
func (s *Stream) Closed() bool { return s.handle.Usable() != nil }

// on is the GPU and the handle of the stream that work goes to: work runs in
// the context of its stream, even if that is another GPU's. A stream of the CPU, or of
// another driver, is an error: no order of work is known across drivers.
func (d *Device) on(s device.Stream) (*gpu.GPU, uintptr, error) {
	switch s := s.(type) {
	case nil:
		return d.gpu, 0, nil
	case *Stream:
		if s == nil {
			return d.gpu, 0, nil
		}
		if s.dev.gpu.Platform != d.gpu.Platform {
			return nil, 0, d.foreign("stream", s.Device())
		}
		return s.dev.gpu, s.Handle(), s.handle.Usable()
	}
	if argument.IsNil(s) {
		return nil, 0, errNoStream
	}
	// Another implementation's stream, which stands for one of this GPU.
	if of, ok := s.Device().(interface{ Own() *Device }); !ok || of.Own() != d.Own() {
		return nil, 0, d.foreign("stream", s.Device())
	}
	return d.gpu, s.Handle(), nil
}

// gpuOf is the GPU whose stream it is, even if the stream cannot be used.
func (d *Device) gpuOf(s device.Stream) *gpu.GPU {
	if own, ok := s.(*Stream); ok && own != nil {
		return own.dev.gpu
	}
	return d.gpu
}

var errNoStream = argument.Nil("cuda", "stream", "a stream")

// foreign is the error for an argument that belongs to another device than d.
func (d *Device) foreign(argument string, of device.Device) error {
	owner := "no device"
	if of != nil {
		owner = of.ID().String()
	}
	if other, ok := of.(*Device); ok && other.gpu.Platform != d.gpu.Platform {
		owner += " of another driver"
	}
	return fmt.Errorf("cuda: %s of %s, want one of %s", argument, owner, d.ID())
}

// eventFor is the CUevent that a stream is to record or wait for. The handle of an event of another device
// than a GPU of this driver means nothing here.
func (s *Stream) eventFor(e device.Event) (uintptr, error) {
	if s == nil {
		return 0, errNoStream
	}
	h, err := eventHandle(e)
	if err != nil {
		return 0, err
	}
	of, ok := e.Device().(interface{ Own() *Device })
	if !ok || of.Own().gpu.Platform != s.dev.gpu.Platform {
		return 0, s.dev.foreign("event", e.Device())
	}
	return h, s.handle.Usable()
}

// Record makes e complete once all work on this stream so far is done. The event
// is of the same GPU.
func (s *Stream) Record(e device.Event) error {
	h, err := s.eventFor(e)
	if err != nil {
		return err
	}
	if own, ok := e.(*Event); ok && own.dev != s.dev {
		return s.dev.foreign("event", own.dev)
	}
	return s.dev.gpu.Record(h, s.Handle())
}

// WaitEvent makes work enqueued from now on wait for the latest record of e, which
// may be an event of another GPU.
func (s *Stream) WaitEvent(e device.Event) error {
	h, err := s.eventFor(e)
	if err != nil {
		return err
	}
	s.apart.Store(false)
	return s.dev.gpu.WaitEvent(s.Handle(), h)
}

// AwaitRoom waits until the stream has room for more work, or ctx is done; see Streams in the documentation of the
// package. [Stream.Record], [Stream.WaitEvent] and [Device.Memset], which have no context, then do not block in the driver.
// Where there is room, it returns at once, even if ctx is done.
func (s *Stream) AwaitRoom(ctx context.Context) error {
	if err := argument.Context("cuda: await room", ctx); err != nil {
		return err
	}
	if err := s.handle.Usable(); err != nil {
		return err
	}
	return s.dev.gpu.Backlog.AwaitRoom(ctx, s.Handle())
}

// Query reports whether all work enqueued so far has completed. It does not wait.
func (s *Stream) Query() (bool, error) { return s.handle.QueryStream() }

// Synchronize waits until all work enqueued so far has completed, or ctx is done.
//
// With a context that can end, the driver is polled on this goroutine: for 100 microseconds without
// a pause, then at intervals of an eighth of the time that has passed, and of at most a millisecond.
// With any other context the call blocks in the driver, where the flags of the primary context decide
// whether it spins; at most 64 such waits block at a time, the others poll as well.
func (s *Stream) Synchronize(ctx context.Context) error {
	if err := argument.Context("cuda: synchronize", ctx); err != nil {
		return err
	}
	return s.handle.SynchronizeStream(ctx)
}
