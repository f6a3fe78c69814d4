package cdevice

import (
	"context"

	"github.com/arrowdevice/arrowdevice/internal/copyplan"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// ForCuDF returns the batch as libcudf (cuDF, pylibcudf) imports it without loss: with exact
// null counts, since libcudf takes an unknown one for none; without offsets; with bitmaps that
// are aligned and padded with zeros, since it reads them in whole words; and only with types,
// index types and lengths that it has. A batch that is not laid out like this is copied on its
// device; null counts that are not known are counted, which waits for the batch's event. ctx ends
// the wait.
//
// A column that libcudf cannot import is an error that names it and wraps arrow.ErrNotImplemented. The
// memory must be CUDA's (device, managed or pinned), otherwise the error wraps
// device.ErrNotSupported. The result is owned by the caller.
func (b *RecordBatch) ForCuDF(ctx context.Context) (*RecordBatch, error) {
	if err := fielderr.CheckContext(fielderr.OpCuDF, ctx); err != nil {
		return nil, err
	}
	if err := b.hold(fielderr.OpCuDF); err != nil {
		return nil, err
	}
	defer b.mem.Release()
	t, err := copyplan.ForCuDF(ctx, b.tree())
	if err != nil {
		return nil, err
	}
	fitted := newRecordBatch(t.Mem, t.At, b.schema, b.rows, t.Nodes)
	fitted.metadata = b.metadata
	return fitted, nil
}

// ForCuDF returns the array as libcudf imports it; see [RecordBatch.ForCuDF].
func (a *Array) ForCuDF(ctx context.Context) (*Array, error) {
	if err := fielderr.CheckContext(fielderr.OpCuDF, ctx); err != nil {
		return nil, err
	}
	if err := a.hold(fielderr.OpCuDF); err != nil {
		return nil, err
	}
	defer a.mem.Release()
	t, err := copyplan.ForCuDF(ctx, a.tree())
	if err != nil {
		return nil, err
	}
	return newArray(t.Mem, t.At, a.field, t.Nodes[0]), nil
}
