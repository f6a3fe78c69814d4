package cdevice

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/copyplan"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Batches and arrays for consumers with requirements of their own. They share the memory of the
// original.

// AsCPU returns the batch labelled as one of the CPU, without an event: for consumers that know no
// other device (PyArrow from PyPI imports device type CPU only) and for the plain structs. It waits
// for the batch's event; ctx ends the wait with an error.
//
// The CPU must be able to access the memory (CPU, pinned or managed memory), otherwise the error wraps
// device.ErrNotSupported, and [RecordBatch.CopyTo] with [device.CPUDevice] copies the batch.
//
// The result shares the memory and is owned by the caller.
func (b *RecordBatch) AsCPU(ctx context.Context) (*RecordBatch, error) {
	if err := fielderr.CheckContext(fielderr.OpRead, ctx); err != nil {
		return nil, err
	}
	if err := b.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer b.mem.Release()
	at, err := b.asCPU(ctx)
	if err != nil {
		return nil, err
	}
	return b.located(b.mem.Retain(), at), nil
}

// AsCPU returns the array labelled as one of the CPU; see [RecordBatch.AsCPU].
func (a *Array) AsCPU(ctx context.Context) (*Array, error) {
	if err := fielderr.CheckContext(fielderr.OpRead, ctx); err != nil {
		return nil, err
	}
	if err := a.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer a.mem.Release()
	at, err := a.asCPU(ctx)
	if err != nil {
		return nil, err
	}
	return a.located(a.mem.Retain(), at), nil
}

// located returns the batch with another location, or another owner, whose reference it takes.
func (b *RecordBatch) located(mem *tree.Owner, at tree.Location) *RecordBatch {
	other := newRecordBatch(mem, at, b.schema, b.rows, b.columns)
	other.host, other.metadata = b.host, b.metadata
	return other
}

// located returns the array with another location, or another owner, whose reference it takes.
func (a *Array) located(mem *tree.Owner, at tree.Location) *Array {
	other := newArray(mem, at, a.field, a.node)
	other.host = a.host
	return other
}

// RecordEvent returns the batch with a new event, which is complete when the work enqueued on s so far
// has completed and the batch's own event is complete: for memory that work on s is still filling. It
// does not wait; s waits for the batch's event. The event is closed after the last use of the result.
//
// The stream must be one of the device that the memory is on, since a sync_event is an event of that
// device. Device, pinned and managed memory of one GPU share its streams; memory without a device ID
// takes a stream of any GPU. Another stream, or nil, is an error that wraps arrow.ErrInvalid. Work of
// the CPU completes at once: with a stream of the CPU, the result has no event.
//
// The result shares the memory and is owned by the caller.
func (b *RecordBatch) RecordEvent(s device.Stream) (*RecordBatch, error) {
	if err := b.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer b.mem.Release()
	mem, at, err := recordEvent(b.mem, b.at(), s)
	if err != nil {
		return nil, err
	}
	return b.located(mem, at), nil
}

// RecordEvent returns the array with a new event; see [RecordBatch.RecordEvent].
func (a *Array) RecordEvent(s device.Stream) (*Array, error) {
	if err := a.hold(fielderr.OpRead); err != nil {
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
	if err := at.CheckStream(fielderr.OpRead, "stream", s); err != nil {
		return nil, at, err
	}
	if err := at.WaitOn(s); err != nil {
		return nil, at, err
	}
	event, err := copyplan.EventAfter(s)
	if err != nil {
		return nil, at, fmt.Errorf("cdevice: record an event: %w", err)
	}
	if event.Handle() == 0 { // the device's work is done at once
		tree.CloseEvent(event)
		return mem.Retain(), at, nil
	}
	recorded := &recordedEvent{mem: mem.Retain(), event: event, handle: event.Handle()}
	own := tree.Own(recorded)
	own.Block = mem.Block
	own.Pin(&recorded.handle)
	at.Event = uintptr(unsafe.Pointer(&recorded.handle))
	return own, at, nil
}

// recordedEvent holds the memory and the event of a batch made by RecordEvent.
type recordedEvent struct {
	mem    *tree.Owner // a reference
	event  device.Event
	handle uintptr // of event: what sync_event points to
}

// Release ends the event and the use of the memory.
func (e *recordedEvent) Release() {
	tree.CloseEvent(e.event)
	e.mem.Release()
}

// MarkExported marks the owner of the memory instead of that of the event.
func (e *recordedEvent) MarkExported(*tree.Owner) { e.mem.MarkExported() }
