package cdevice

import (
	"context"

	"github.com/arrowdevice/arrowdevice/internal/copyplan"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
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
