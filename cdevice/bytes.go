package cdevice

import (
	"context"

	"github.com/arrowdevice/arrowdevice/internal/copyplan"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// NumBytes returns the number of bytes that the rows of the batch take in all buffers: the size of a
// copy, without alignment. Sizes that only device memory holds are read, all at once, after the
// batch's event; ctx ends that wait.
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

// NumBytes returns the number of bytes that the elements take; see [RecordBatch.NumBytes].
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
