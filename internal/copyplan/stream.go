package copyplan

import (
	"context"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// waitForStream makes work enqueued on s from now on wait for the work enqueued so far on the
// stream before, which may be nil.
func waitForStream(s, before device.Stream) error {
	if before == nil {
		return nil
	}
	e, err := EventAfter(before)
	if err != nil {
		return fmt.Errorf("cdevice: copy: %w", err)
	}
	defer tree.CloseEvent(e)
	if err := s.WaitEvent(e); err != nil {
		return fmt.Errorf("cdevice: copy: wait for the stream: %w", err)
	}
	return nil
}

// copyStream returns on or, if that is nil, a new stream of the device. The caller calls done when
// all work is enqueued.
func copyStream(on device.Stream, dev device.Device) (s device.Stream, done func(), err error) {
	if on != nil {
		return on, func() {}, nil
	}
	// mutant: if s, err = dev.WrapStream(0); err != nil {
	if s, err = NewStream(dev); err != nil {
		return nil, nil, err
	}
	return s, func() { _ = s.Close() }, nil // the backend tries again itself
}

// NewStream returns a stream for a short use; the caller closes it.
func NewStream(dev device.Device) (device.Stream, error) {
	if d, ok := dev.(device.CopyStreamer); ok {
		return d.CopyStream()
	}
	return dev.NewStream()
}

// checkOnStream checks the stream of WithStream, which may be nil. It must be of the device at,
// which makes the copy, or of the source's device from, if that has the same type: a GPU can copy
// on the streams of another one.
func checkOnStream(on device.Stream, at, from tree.Location) error {
	if on == nil {
		return nil
	}
	err := at.CheckStream(fielderr.OpCopy, "WithStream", on)
	if err != nil && tree.StreamType(from.ID.Type) == tree.StreamType(at.ID.Type) && from.CheckStream(fielderr.OpCopy, "WithStream", on) == nil {
		return nil
	}
	return err
}

// enqueueCopies is device.Device.Copy. ctx ends a wait of the device for room on the stream, which it may have where the
// work before the copies is stuck.
func enqueueCopies(ctx context.Context, dev device.Device, ranges []device.Range, s device.Stream) error {
	if d, ok := dev.(interface {
		CopyContext(context.Context, []device.Range, device.Stream) error
	}); ok {
		return d.CopyContext(ctx, ranges, s)
	}
	return dev.Copy(ranges, s)
}

// awaitRoom waits until the stream has room for calls without a context, if it can say so, or ctx is done.
func awaitRoom(ctx context.Context, s device.Stream) error {
	if r, ok := s.(interface{ AwaitRoom(context.Context) error }); ok {
		return r.AwaitRoom(ctx)
	}
	return nil
}

// ended is a context that is done.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// EventAfter returns an event that is complete when the work enqueued on the stream so far has
// completed.
func EventAfter(s device.Stream) (device.Event, error) {
	e, err := s.Device().NewEvent()
	if err != nil {
		return nil, err
	}
	if err := s.Record(e); err != nil {
		tree.CloseEvent(e)
		return nil, err
	}
	return e, nil
}

// afterStream calls f, which ends a use of mem, or of no owner, nil, after the work enqueued on the stream so far has completed; if no event can
// be recorded there, or only by waiting for room, after all work of its device.
func afterStream(s device.Stream, mem *tree.Owner, f func()) {
	var e device.Event
	err := awaitRoom(ended, s)
	if err == nil {
		e, err = EventAfter(s)
	}
	if err != nil {
		mem.AfterWork(s.Device(), f)
		return
	}
	defer tree.CloseEvent(e)
	mem.AfterEvent(e, f)
}
