package cdevice

import (
	"context"

	"github.com/arrowdevice/arrowdevice/internal/copyplan"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// NumBytes is how many bytes the rows of the batch have in all of its buffers: what a
// copy of it has, without alignment. Where the sizes are on a device, they are read, all
// at once, after the batch's event; ctx ends that wait.
func (b *RecordBatch) NumBytes(ctx context.Context) (int64, error) {
	if err := fielderr.CheckContext(fielderr.OpRead, ctx); err != nil {
		return 0, err
	}
	if err := b.hold(fielderr.OpRead); err != nil {
		return 0, err
	}
	defer b.mem.Release()
	return copyplan.NumBytes(ctx, b.tree())
}

// NumBytes is how many bytes the elements have; see [RecordBatch.NumBytes].
func (a *Array) NumBytes(ctx context.Context) (int64, error) {
	if err := fielderr.CheckContext(fielderr.OpRead, ctx); err != nil {
		return 0, err
	}
	if err := a.hold(fielderr.OpRead); err != nil {
		return 0, err
	}
	defer a.mem.Release()
	return copyplan.NumBytes(ctx, a.tree())
}
