package cdevice

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostview"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// HostView returns the batch as an arrow-go record batch over the same memory. It first waits for the
// batch's event; ctx ends the wait with an error.
//
// The CPU must be able to access the memory (CPU, pinned or managed memory), otherwise the error wraps
// device.ErrNotSupported. On a hardware-coherent machine ([device.Coherent]) such memory may be declared as
// the GPU's: the driver is asked about each buffer. For a batch of [WrapRecordBatch], HostView returns the
// record batch that was wrapped.
//
// The result is owned by the caller. It keeps the memory alive until its release, and so does every
// column that is retained, except one of type null, which has no memory. It makes the array of a
// column when the column is first asked for, or one before it, on any goroutine. arrow-go's rules for concurrent use
// apply: an array counts its nulls at the first call of NullN, without a lock. The contents are
// checked only as far as the sizes of the buffers require; [RecordBatch.ValidateFull] checks all of
// them.
func (b *RecordBatch) HostView(ctx context.Context) (arrow.RecordBatch, error) {
	if err := b.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer b.mem.Release()
	return b.hostView(ctx, b.atForCPU())
}

// hostView is HostView of memory with the location at, which the caller holds.
func (b *RecordBatch) hostView(ctx context.Context, at tree.Location) (arrow.RecordBatch, error) {
	if err := readyForHost(ctx, at); err != nil {
		return nil, err
	}
	if b.host != nil {
		b.host.Retain()
		return b.host, nil
	}
	return hostview.New(b.schema, b.rows, b.metadata, b.columns, b.mem.Retain())
}

// HostView returns the array as an arrow-go array over the same memory; see
// [RecordBatch.HostView].
func (a *Array) HostView(ctx context.Context) (arrow.Array, error) {
	if err := a.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer a.mem.Release()
	if err := readyForHost(ctx, a.atForCPU()); err != nil {
		return nil, err
	}
	if a.host != nil {
		a.host.Retain()
		return a.host, nil
	}
	arr, err := hostview.Array(&a.node, a.mem.Retain())
	if err != nil {
		return nil, fielderr.Within("array", err)
	}
	return arr, nil
}

// readyForHost waits for the event. It returns an error if the CPU cannot access the memory.
func readyForHost(ctx context.Context, at tree.Location) error {
	if err := fielderr.CheckContext(fielderr.OpRead, ctx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cdevice: read: %w", err)
	}
	if !at.CPUAccessible() {
		return fmt.Errorf("cdevice: read: %w", at.NotAccessible("CopyToHost copies it"))
	}
	return at.Synchronize(ctx)
}
