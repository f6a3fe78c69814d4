package cdevice

import (
	"context"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Batches and arrays for consumers with requirements of their own. They share the memory of the
// original.

// AsCPU returns the batch labelled as one of the CPU, without an event: for consumers that know no
// other device (PyArrow from PyPI imports device type CPU only) and for an ArrowArray. It waits
// for the batch's event; ctx ends the wait with an error.
//
// The CPU must be able to access the memory, as for [RecordBatch.HostView], otherwise the error wraps
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
	at, err := b.asCPU(ctx, b.atForCPU())
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
	at, err := a.asCPU(ctx, a.atForCPU())
	if err != nil {
		return nil, err
	}
	return a.located(a.mem.Retain(), at), nil
}

// located returns the batch with another location, or another owner, whose reference it takes.
func (b *RecordBatch) located(mem *tree.Owner, at tree.Location) *RecordBatch {
	other := &RecordBatch{schema: b.schema, rows: b.rows, columns: b.columns, host: b.host, metadata: b.metadata}
	other.init("RecordBatch", mem, at)
	return other
}

// located returns the array with another location, or another owner, whose reference it takes.
func (a *Array) located(mem *tree.Owner, at tree.Location) *Array {
	other := newArray(mem, at, a.field, a.node)
	other.host = a.host
	return other
}
