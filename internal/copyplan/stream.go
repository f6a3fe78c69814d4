package copyplan

import (
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// waitForStream makes work on s from now on wait for the work enqueued on before, which may
// be nil, so far.
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

// copyStream returns on, or where that is nil a stream of the device. done is called when all is
// enqueued.
func copyStream(on device.Stream, dev device.Device) (s device.Stream, done func(), err error) {
	if on != nil {
		return on, func() {}, nil
	}
	if s, err = newCopyStream(dev); err != nil {
		return nil, nil, err
	}
	return s, func() { _ = s.Close() }, nil // the device tries again by itself
}

// checkOnStream checks the stream that WithStream names, which may be nil, for a copy that the
// device at makes, or the device from that it copies out of, if that is of the same type: a GPU
// copies on the streams of another one too.
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
