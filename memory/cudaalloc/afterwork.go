package cudaalloc

import (
	"context"

	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/gpu"
	"github.com/arrowdevice/arrowdevice/internal/keep"
)

func init() { keep.SetBackend(afterWork, driverOf) }

// afterWork is keep.AfterWork for a device, a stream or an event of this package.
func afterWork(of any, known *keep.Known, f func()) bool {
	one := gpu.CallOwn(f, known)
	switch of := of.(type) {
	case *Device:
		of.gpu.Defer(one)
	case *Stream:
		of.afterWork(one)
	case *Event:
		of.handle.Defer(one)
	default:
		return false
	}
	return true
}

func driverOf(of any) keep.Driver {
	if d, ok := of.(*Device); ok && d.gpu.Ctx.Watched() {
		return d.gpu.Ctx.Driver()
	}
	return nil
}

// AfterWork calls f after all work already enqueued on any stream of this GPU, including
// streams of other libraries, has completed, and that of all other GPUs of the driver that are
// open: a copy on one of them may read memory of this GPU. It returns at once; f is called on a
// goroutine of this package and may block: neither frees nor other functions wait for it. A panic
// of f is logged, and counted in [Stats]. For the work of one stream, there is [Stream.AfterWork].
//
// For that the whole context is synchronised, on another goroutine, and not while a capture of a
// stream (CUDA graphs) is visible; see [Device.HoldSynchronization]. If the context is gone, and its
// work with it, f is called then.
//
// A nil f panics.
func (d *Device) AfterWork(f func()) {
	if f == nil {
		panic(argument.Nil("cuda: AfterWork", "f", "a function"))
	}
	d.gpu.Defer(gpu.Call(f))
}

// AfterWork calls f after the work already enqueued on this stream has completed: on this goroutine,
// if it has, or later on one of this package. What f may do is said of [Device.AfterWork].
//
// An event is recorded on the stream for that, unless the stream is closed, is being captured or is
// that of [Device.PerThread]: then f is called by Device.AfterWork.
func (s *Stream) AfterWork(f func()) {
	if f == nil {
		panic(argument.Nil("cuda: AfterWork", "f", "a function"))
	}
	s.afterWork(gpu.Call(f))
}

func (s *Stream) afterWork(one *gpu.Deferral) {
	if !s.dev.gpu.Streams.Defer(&s.handle, one) {
		s.dev.gpu.Defer(one)
	}
}

// Flush waits until everything that now waits for work of the GPU has ended: functions of
// [Device.AfterWork] and [Event.OnComplete] have returned, memory is freed. It returns at once if
// nothing waits. ctx ends the wait with an error, which also wraps the driver's where the
// context could not be synchronised. Memory and handles that the driver failed to end meanwhile
// are an error, too.
//
// A function of AfterWork or OnComplete must not call it without an end of ctx: it would wait
// for itself.
func (d *Device) Flush(ctx context.Context) error {
	if err := argument.Context("cuda: flush", ctx); err != nil {
		return err
	}
	if err := d.gpu.Deferred.Flush(ctx); err != nil {
		return err
	}
	d.gpu.Backlog.Trim() // whose events may be of work that is done
	return nil
}

// Trim waits like [Device.Flush], and then gives the unused memory of pools and caches, and unused
// streams and events, back to the driver. ctx ends the wait with an error.
func (d *Device) Trim(ctx context.Context) error {
	if err := argument.Context("cuda: trim", ctx); err != nil {
		return err
	}
	return d.gpu.Trim(ctx)
}

// HoldSynchronization prevents this package from synchronising the context of the GPU until
// release is called. It waits for a synchronisation that is under way; ctx ends that wait with
// an error, and release is nil then. Several holds may exist at a time.
//
// It is for programs that capture streams (CUDA graphs) of other libraries that are
// CU_STREAM_NON_BLOCKING: the driver does not report such captures, and a synchronisation
// invalidates them. Captures of streams of this package, and of all streams that are ordered
// with the legacy default stream, are visible, but only a hold prevents a
// synchronisation that starts just as a capture begins.
//
// Until release, functions of [Device.AfterWork] are not called, memory that was exported and
// released stays allocated, and [Device.Flush] and [Device.Trim] wait
// if anything needs the context.
func (d *Device) HoldSynchronization(ctx context.Context) (release func(), err error) {
	if err := argument.Context("cuda: hold synchronisation", ctx); err != nil {
		return nil, err
	}
	return d.gpu.Synchronizer.Hold(ctx)
}
