package cdevice

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/items"
)

// NewRecordReaderFuncContext is [NewRecordReaderFunc] for a function that waits, for example for a
// network. next gets a context that ends with ctx, with the last Release and with Close, even while
// next is running on another goroutine. next must return soon after that; its error is the stream's.
// If ctx has ended, next is still called, so that the error is its own.
//
// The result is owned by the caller.
func NewRecordReaderFuncContext(ctx context.Context, schema *arrow.Schema, t device.Type, next func(context.Context) (*RecordBatch, error), stop func()) (*RecordReader, error) {
	if err := fielderr.CheckContext(fielderr.OpNew, ctx); err != nil {
		return nil, err
	}
	if err := checkNew(schema != nil, "next", next != nil, t); err != nil {
		return nil, err
	}
	f := &contextFunction{}
	f.ctx, f.cancel = context.WithCancel(ctx)
	f.Ask = func() (*RecordBatch, error) { return next(f.ctx) }
	f.Check = func(b *RecordBatch) error { return checkBatch(b, schema, t) }
	f.Stop = stop
	return newRecordReader(schema, t, f), nil
}

// contextFunction is a source that calls a function that a context interrupts.
type contextFunction struct {
	items.Function[*RecordBatch]
	ctx    context.Context
	cancel func()
}

func (f *contextFunction) Interrupt() { f.cancel() }

// Close ends the context even if nothing interrupted the function.
func (f *contextFunction) Close(done func()) {
	f.cancel()
	f.Function.Close(done)
}
