package cdevice

import (
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/copyplan"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// WithEvent returns the batch with a new event, which is complete when the work enqueued on s so far
// has completed and the batch's own event is complete: for memory that work on s is still filling. It
// does not wait; s waits for the batch's event. The event is closed after the last use of the result.
//
// The stream must be one of the device that the memory is on, since a sync_event is an event of that
// device. Device, pinned and managed memory of one GPU share its streams; memory without a device ID
// takes a stream of any GPU. Another stream, or nil, is an error that wraps arrow.ErrInvalid. Work of
// the CPU completes at once: with a stream of the CPU, the result has no event.
//
// The result shares the memory and is owned by the caller.
func (b *RecordBatch) WithEvent(s device.Stream) (*RecordBatch, error) {
	if err := b.hold(fielderr.OpRecord); err != nil {
		return nil, err
	}
	defer b.mem.Release()
	mem, at, err := recordEvent(b.mem, b.at(), s)
	if err != nil {
		return nil, err
	}
	return b.located(mem, at), nil
}

// WithEvent returns the array with a new event; see [RecordBatch.WithEvent].
func (a *Array) WithEvent(s device.Stream) (*Array, error) {
	if err := a.hold(fielderr.OpRecord); err != nil {
		return nil, err
	}
	defer a.mem.Release()
	mem, at, err := recordEvent(a.mem, a.at(), s)
	if err != nil {
		return nil, err
	}
	return a.located(mem, at), nil
}

// recordEvent returns an owner of the memory and of a new event recorded on s, and the location
// with that event.
func recordEvent(mem *tree.Owner, at tree.Location, s device.Stream) (*tree.Owner, tree.Location, error) {
	if err := at.CheckStream(fielderr.OpRecord, "stream", s); err != nil {
		return nil, at, err
	}
	if err := at.WaitOn(s); err != nil {
		return nil, at, fielderr.During(fielderr.OpRecord, err)
	}
	event, err := copyplan.EventAfter(s)
	if err != nil {
		return nil, at, fmt.Errorf("cdevice: record event: %w", err)
	}
	if event.Handle() == 0 { // the device's work is done at once
		tree.CloseEvent(event)
		return mem.Retain(), at, nil
	}
	own := tree.Own(&recordedEvent{mem: mem.Retain(), event: event})
	own.Block = mem.Block
	at.Event = own.PinEvent(event.Handle())
	return own, at, nil
}

// recordedEvent holds the memory and the event of a batch made by WithEvent.
type recordedEvent struct {
	mem   *tree.Owner // a reference
	event device.Event
}

// Release ends the event and the use of the memory.
func (e *recordedEvent) Release() {
	tree.CloseEvent(e.event)
	e.mem.Release()
}

// Owner returns the owner of the memory: work that uses it is not the event's.
func (e *recordedEvent) Owner() *tree.Owner { return e.mem }
