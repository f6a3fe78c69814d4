package main

import (
	"context"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func TestRegistration(t *testing.T) { require.NoError(t, pyextension.Check()) }

func TestUnitsOfACode(t *testing.T) {
	for code, want := range map[string]int64{
		"A-0042": 1, "a0042": 1, " b/7 ": 1, "z 1": 1, "A-0042x3": 3, "A-0042 * 12": 12, "c/0000*01 ": 1,
	} {
		units, ok := unitsOf(code)
		assert.True(t, ok, "%q", code)
		assert.Equal(t, want, units, "%q", code)
	}
	for _, code := range []string{
		"", " ", "A", "A-", "42", "A--42", "A  42", "A-00421", "A-42x", "A-42x0", "A-42x123", "A-42 3", "@1", "[1", "Á1", "A-42x3x", "n/a",
	} {
		_, ok := unitsOf(code)
		assert.False(t, ok, "%q", code)
	}
}

var input = arrow.NewSchema([]arrow.Field{
	{Name: "time", Type: &arrow.TimestampType{Unit: arrow.Microsecond}},
	{Name: "country", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "cents", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "code", Type: arrow.BinaryTypes.String, Nullable: true},
}, nil)

// orders is a reader of batches, one of each JSON text.
func orders(t *testing.T, schema *arrow.Schema, texts ...string) *cdevice.RecordReader {
	t.Helper()
	var batches []arrow.RecordBatch
	for _, text := range texts {
		batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(text))
		require.NoError(t, err)
		defer batch.Release()
		batches = append(batches, batch)
	}
	reader, err := array.NewRecordReader(schema, batches)
	require.NoError(t, err)
	defer reader.Release()
	wrapped, err := cdevice.WrapRecordReader(reader, device.CPUDevice())
	require.NoError(t, err)
	t.Cleanup(wrapped.Release)
	return wrapped
}

func TestSummarize(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	reader := orders(t, input, `[
		{"time": "2024-03-01T00:00:00", "country": "NO", "cents": 250, "code": "A-1 x2"},
		{"time": "2024-03-01T23:59:59", "country": " no", "cents": null, "code": "A-1 x3"},
		{"time": "2024-03-01T12:00:00", "country": "no", "cents": 7, "code": "n/a"}]`, `[
		{"time": "1969-12-31T23:59:59", "country": null, "cents": -5, "code": "b2"},
		{"time": "1970-01-01T00:00:00", "country": null, "cents": 1, "code": null}]`)
	out, err := summarize(context.Background(), reader, nil)
	require.NoError(t, err)
	defer out.Release()
	got, err := out.MarshalJSON()
	require.NoError(t, err)
	assert.JSONEq(t, `[
		{"country": "?", "day": "1969-12-31", "orders": 1, "units": 1, "cents": -5, "rejected": 0},
		{"country": "?", "day": "1970-01-01", "orders": 0, "units": 0, "cents": 0, "rejected": 1},
		{"country": "NO", "day": "2024-03-01", "orders": 2, "units": 5, "cents": 500, "rejected": 1}]`, string(got))
}

func TestBadOrders(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	const good = `[{"time": "2024-03-01T00:00:00", "country": "NO", "cents": 1, "code": "A-1"}]`
	for bad, want := range map[string]string{
		`[{"time": null}]`: "column time is null in row 1",
		`[{"time": "2024-03-01T00:00:00", "cents": 9223372036854775807, "code": "A1"}]`: "column cents is 9223372036854775807 in row 1",
	} {
		_, err := summarize(context.Background(), orders(t, input, good, bad), nil)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
		assert.ErrorContains(t, err, want)
	}
	for _, missing := range input.Fields() {
		fields := input.Fields()
		fields[input.FieldIndices(missing.Name)[0]].Name = "other"
		_, err := summarize(context.Background(), orders(t, arrow.NewSchema(fields, nil), `[{}]`), nil)
		assert.ErrorContains(t, err, `0 columns "`+missing.Name+`"`)
		fields = input.Fields()
		fields[input.FieldIndices(missing.Name)[0]].Type = arrow.PrimitiveTypes.Float32
		_, err = summarize(context.Background(), orders(t, arrow.NewSchema(fields, nil), `[{}]`), nil)
		assert.ErrorIs(t, err, arrow.ErrType)
		assert.ErrorContains(t, err, "column "+missing.Name+" is float32")
	}
}

// The end of the context ends the step between two batches.
func TestCancelled(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := summarize(ctx, orders(t, input, `[]`), nil)
	assert.ErrorIs(t, err, context.Canceled)
}
