//go:build !linux

package share

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// Each function that needs Linux says so by its name.
func TestOtherSystems(t *testing.T) {
	ctx := context.Background()
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int32}}, nil)
	record, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(`[{"n": 1}]`))
	require.NoError(t, err)
	defer record.Release()
	batch, err := cdevice.WrapRecordBatch(record, device.CPUDevice())
	require.NoError(t, err)
	defer batch.Release()
	for function, call := range map[string]func() error{
		"Share":        func() error { _, err := Share(ctx, batch); return err },
		"Open":         func() error { _, err := Open(ctx, Ticket("a ticket")); return err },
		"NewAllocator": func() error { _, err := NewAllocator(WithLimit(1 << 20)); return err },
	} {
		err := call()
		assert.ErrorIs(t, err, device.ErrNotSupported, function)
		assert.EqualError(t, err, "share: "+function+": on "+runtime.GOOS+": "+device.ErrNotSupported.Error())
	}
	// Errors of the program come first: they are the same on every system.
	_, err = Share(ctx, nil)
	assert.ErrorIs(t, err, arrow.ErrInvalid)
}
