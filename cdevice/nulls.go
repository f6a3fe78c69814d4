package cdevice

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/copyplan"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
)

// CountNulls returns the number of nulls. If it is not known, CountNulls waits for the array's event
// and counts it in the bitmap. ctx ends the wait.
func (a *Array) CountNulls(ctx context.Context) (int64, error) {
	if err := fielderr.CheckContext(fielderr.OpRead, ctx); err != nil {
		return 0, err
	}
	if err := a.hold(fielderr.OpRead); err != nil {
		return 0, err
	}
	defer a.mem.Release()
	counted, err := copyplan.CountNulls(ctx, a.tree(), false)
	if err != nil {
		return 0, err
	}
	return counted[0].Nulls, nil
}

// wrapCountedBatch is WrapRecordBatch, and counts the nulls that were not counted; see [hostread.CountingDevice].
func wrapCountedBatch(rec arrow.RecordBatch, dev device.Device) (*RecordBatch, error) {
	b, err := WrapRecordBatch(rec, dev)
	if err != nil {
		return nil, err
	}
	if _, counted := b.columns.Source().(*cstruct.Wrapped); counted {
		return b, nil
	}
	for i := range b.nodes() {
		hostread.SetNulls(&b.nodes()[i])
	}
	return b, nil
}

// wrapCountedArray is WrapArray, and counts the nulls that were not counted.
func wrapCountedArray(arr arrow.Array, dev device.Device) (*Array, error) {
	a, err := WrapArray(arr, dev)
	if err == nil {
		hostread.SetNulls(&a.node)
	}
	return a, err
}
