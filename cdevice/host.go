package cdevice

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
)

// HostView returns the batch as an arrow-go record batch over the same memory,
// for all that arrow-go can do. It first waits for the batch's event, if there
// is one; ctx ends the wait with an error.
//
// The host must be able to read the memory (CPU, pinned or managed), otherwise
// the error wraps device.ErrNotSupported. A batch that was made by [WrapRecordBatch] gives
// the record batch that was wrapped.
//
// The result is owned by the caller. It, and every column taken from it, keeps
// the memory alive until its release. It follows arrow-go's rules for concurrent
// use: an array counts its nulls when it is first asked, without a lock. The
// contents are not checked beyond what the buffers' sizes need: see
// [RecordBatch.ValidateFull].
func (b *RecordBatch) HostView(ctx context.Context) (arrow.RecordBatch, error) {
	if err := b.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer b.mem.Release()
	if err := readyForHost(ctx, b.at()); err != nil {
		return nil, err
	}
	if b.host != nil {
		b.host.Retain()
		return b.host, nil
	}
	columns := make([]arrow.Array, 0, len(b.columns))
	defer func() { hostread.ReleaseAll(columns) }()
	v := viewer{mem: viewMemory(b.mem)}
	defer v.mem.drop()
	for i := range b.columns {
		column, err := v.array(&b.columns[i])
		if err != nil {
			return nil, fielderr.Within(fmt.Sprintf("column[%d]", i), err)
		}
		columns = append(columns, column)
	}
	return hostread.NewRecordBatch(b.schema, columns, b.rows)
}

// HostView returns the array as an arrow-go array over the same memory; see
// [RecordBatch.HostView].
func (a *Array) HostView(ctx context.Context) (arrow.Array, error) {
	if err := a.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer a.mem.Release()
	if err := readyForHost(ctx, a.at()); err != nil {
		return nil, err
	}
	if a.host != nil {
		a.host.Retain()
		return a.host, nil
	}
	v := viewer{mem: viewMemory(a.mem)}
	defer v.mem.drop()
	arr, err := v.array(&a.node)
	if err != nil {
		return nil, fielderr.Within("array", err)
	}
	return arr, nil
}
