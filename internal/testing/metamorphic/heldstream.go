package metamorphic

import (
	"errors"

	"github.com/arrowdevice/arrowdevice/device"
)

// heldStream is a stream of an operation, whose work is held back by an event of its own. On the CPU, nothing is.
type heldStream struct {
	device.Stream
	r      *run
	gate   device.Event // nil where nothing is held back
	fired  bool
	closed bool
}

// holdStream returns a stream of a device on which work that is enqueued from now on is held back.
func (r *run) holdStream(d device.Device) (*heldStream, error) {
	s, err := d.NewStream()
	if err != nil || r.machine == nil {
		return &heldStream{Stream: s, r: r}, err
	}
	gate, err := d.NewEvent()
	if err == nil {
		err = r.machine.HoldEvent(gate.Handle())
	}
	if err == nil {
		err = s.Record(gate)
	}
	return &heldStream{Stream: s, r: r, gate: gate}, err
}

// fire lets the work go on, once.
func (s *heldStream) fire() error {
	if s.gate == nil || s.fired {
		return nil
	}
	s.fired = true
	return s.r.machine.FireEvent(s.gate.Handle())
}

// Close closes the stream once.
func (s *heldStream) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	return s.Stream.Close()
}

// end closes the stream and its event, whose work is done.
func (s *heldStream) end() error {
	err := s.Close()
	if s.gate != nil {
		err = errors.Join(err, s.gate.Close())
	}
	return err
}

// expectAlone is what is expected of operations that use no objects of the program, and leave none.
func expectAlone(*model, Op) (string, bool) { return "ok", true }
