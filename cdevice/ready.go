package cdevice

import (
	"context"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
)

// Ready says whether the memory may be read: whether the batch's event is complete.
// It does not wait. A batch without an event is ready.
func (b *RecordBatch) Ready() (bool, error) { return ready(&b.refs, b.place, "RecordBatch") }

// Ready says whether the memory may be read; see [RecordBatch.Ready].
func (a *Array) Ready() (bool, error) { return ready(&a.refs, a.place, "Array") }

// Wait waits until the batch's event is complete, or ctx is done. Whatever reads the
// memory in this package waits by itself.
func (b *RecordBatch) Wait(ctx context.Context) error {
	if b.refs.Load() <= 0 {
		return readReleased("RecordBatch")
	}
	return b.place.wait(ctx)
}

// Wait waits until the array's event is complete; see [RecordBatch.Wait].
func (a *Array) Wait(ctx context.Context) error {
	if a.refs.Load() <= 0 {
		return readReleased("Array")
	}
	return a.place.wait(ctx)
}

// WaitOn makes work that is enqueued on s from now on wait for the batch's event. It
// does not wait itself. Tell the batch about that work with [RecordBatch.UsedOn].
func (b *RecordBatch) WaitOn(s device.Stream) error {
	if b.refs.Load() <= 0 {
		return readReleased("RecordBatch")
	}
	return waitOn(b.place, s)
}

// WaitOn makes work on s wait for the array's event; see [RecordBatch.WaitOn].
func (a *Array) WaitOn(s device.Stream) error {
	if a.refs.Load() <= 0 {
		return readReleased("Array")
	}
	return waitOn(a.place, s)
}

// UsedOn says that work on s uses the memory. The memory then outlives that work: when
// the last user of the batch is gone, it is released after the work that the stream's
// device has by then, on a goroutine of the device's. The producer's release callback
// is called there.
func (b *RecordBatch) UsedOn(s device.Stream) error {
	if b.refs.Load() <= 0 {
		return readReleased("RecordBatch")
	}
	return usedOn(b.mem, s)
}

// UsedOn says that work on s uses the memory; see [RecordBatch.UsedOn].
func (a *Array) UsedOn(s device.Stream) error {
	if a.refs.Load() <= 0 {
		return readReleased("Array")
	}
	return usedOn(a.mem, s)
}

func ready(refs interface{ Load() int64 }, at place, what string) (bool, error) {
	if refs.Load() <= 0 {
		return false, readReleased(what)
	}
	if at.event == 0 {
		return true, nil
	}
	event, err := at.openEvent()
	if err != nil {
		return false, fmt.Errorf("cdevice: sync_event: %w", err)
	}
	defer event.Close() // borrowed
	return event.Query()
}

func waitOn(at place, s device.Stream) error {
	if s == nil {
		return invalid(opRead, "stream", "nil", "a stream")
	}
	return at.waitOn(s)
}

func usedOn(mem *memoryOwner, s device.Stream) error {
	if s == nil {
		return invalid(opRead, "stream", "nil", "a stream")
	}
	mem.usedOn(s.Device())
	return nil
}
