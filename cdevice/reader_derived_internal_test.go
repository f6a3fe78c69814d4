package cdevice

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// A reader that is released, or closed, interrupts its source: the context of the program has not ended.
func TestInterruptedSource(t *testing.T) {
	schema := arrow.NewSchema(nil, nil)
	for name, row := range map[string]struct {
		end  func(d *derived[*RecordBatch], cancel func())
		want error
	}{
		"interrupted":       {func(d *derived[*RecordBatch], _ func()) { d.Interrupt() }, ErrReleased},
		"source closed":     {func(d *derived[*RecordBatch], _ func()) { d.from.Interrupt(); d.cancel() }, ErrReleased},
		"context cancelled": {func(_ *derived[*RecordBatch], cancel func()) { cancel() }, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := NewRecordReaderFunc(t.Context(), schema, device.CPU, func(context.Context) (*RecordBatch, error) {
				return NewRecordBatch(device.CPUDevice(), schema, 0, nil, Lifetime{})
			}, nil)
			require.NoError(t, err)
			defer r.Release() // so that the source is not the only one that has it
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			d, err := derive(ctx, "RecordReader", &r.r)
			require.NoError(t, err)
			d.make = func(b *RecordBatch) (*RecordBatch, error) {
				b.Release()
				row.end(d, cancel)
				return nil, fielderr.ContextError(d.ctx, fielderr.OpRead)
			}
			_, err = d.Next()
			assert.ErrorIs(t, err, row.want)
			d.Close(func() {})
		})
	}
}
