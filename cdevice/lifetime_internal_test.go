package cdevice

import (
	"context"
	"strings"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

var lateValues [4]int64

// A call after the last Release is an error of every function. A call that races another goroutine's last Release may find the
// batch alive and its memory gone: the memory is looked at last. That is a batch that was released, too.
func TestCallsAfterTheLastRelease(t *testing.T) {
	values := device.Ptr(uintptr(unsafe.Pointer(&lateValues[0])))
	data := ArrayData{Length: 4, Buffers: []device.Ptr{0, values}}
	schema := arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b, err := NewRecordBatch(device.CPUDevice(), schema, 4, []ArrayData{data}, Lifetime{})
	require.NoError(t, err)
	list := ArrayData{Length: 0, Buffers: []device.Ptr{0, values}, Children: []ArrayData{data}}
	a, err := NewArray(device.CPUDevice(), arrow.ListOf(arrow.PrimitiveTypes.Int64), list, Lifetime{})
	require.NoError(t, err)
	b.mem.Release() // the next action of the other goroutine
	a.mem.Release()
	assert.True(t, b.refs.Alive() && a.refs.Alive())
	callReleased(t, b, a)
	for _, s := range []*shared{&b.shared, &a.shared} { // the end of Release, whose beginning is above
		endLate(s)
	}
	callReleased(t, b, a)
}

// So it is with a batch and an array that were imported, and a batch that was wrapped.
func TestCallsOfImportsAndWrapsAfterTheLastRelease(t *testing.T) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Int64}}, nil)
	values := cpeer.Node{Length: 4, Buffers: []uintptr{0, uintptr(unsafe.Pointer(&lateValues[0]))}}
	producer := cpeer.NewTree(cpeer.Node{Length: 4, Buffers: []uintptr{0}, Children: []cpeer.Node{values}})
	defer producer.Free()
	batch := func() *RecordBatch {
		in := new(CArrowDeviceArray)
		producer.Export(deviceMirror(in))
		b, err := ImportRecordBatchWithSchema(in, schema)
		require.NoError(t, err)
		return b
	}
	lists := cpeer.NewTree(cpeer.Node{Buffers: []uintptr{0, 0}, Children: []cpeer.Node{values}})
	defer lists.Free()
	list := func() *Array {
		in := new(CArrowDeviceArray)
		lists.Export(deviceMirror(in))
		a, err := ImportArrayWithType(in, arrow.ListOf(arrow.PrimitiveTypes.Int64))
		require.NoError(t, err)
		return a
	}
	var view ArrayView
	viewed := func() *RecordBatch {
		b := batch()
		var err error
		view, err = b.ColumnView(context.Background(), 0)
		require.NoError(t, err)
		return b
	}
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(`[{"x": 1}, {"x": 2}, {"x": 3}, {"x": 4}]`))
	require.NoError(t, err)
	defer rec.Release()
	wrapped := func() *RecordBatch {
		b, err := WrapRecordBatch(rec, device.CPUDevice())
		require.NoError(t, err)
		return b
	}
	ended, endedArray, endedWrapped := viewed(), list(), wrapped()
	for _, s := range []*shared{&ended.shared, &endedArray.shared, &endedWrapped.shared} {
		s.mem.Release()
	}
	callReleased(t, ended, endedArray)
	callReleased(t, endedWrapped, endedArray)
	_, err = Values[int64](view)
	assert.ErrorIs(t, err, ErrReleased)
	for _, s := range []*shared{&ended.shared, &endedArray.shared, &endedWrapped.shared} {
		endLate(s)
	}
	callReleased(t, ended, endedArray)
	callReleased(t, endedWrapped, endedArray)
}

// endLate is the end of a last Release, which has released the memory.
func endLate(s *shared) {
	s.refs.Release()
	liveBatches.Add(-1)
}

// callReleased calls each function of a batch and an array that were released.
func callReleased(t *testing.T, b *RecordBatch, a *Array) {
	t.Helper()
	ctx := context.Background()
	for name, call := range map[string]func() error{
		"RecordBatch.Slice":       func() error { _, err := b.Slice(1, 2); return err },
		"RecordBatch.Select":      func() error { _, err := b.Select(0); return err },
		"RecordBatch.NumBytes":    func() error { _, err := b.NumBytes(ctx); return err },
		"RecordBatch.CopyToHost":  func() error { _, err := b.CopyToHost(ctx, nil); return err },
		"RecordBatch.CopyTo":      func() error { _, err := b.CopyTo(ctx, device.CPUDevice()); return err },
		"RecordBatch.HostView":    func() error { _, err := b.HostView(ctx); return err },
		"RecordBatch.ColumnView":  func() error { _, err := b.ColumnView(ctx, 0); return err },
		"RecordBatch.Synchronize": func() error { return b.Synchronize(ctx) },
		"RecordBatch export":      func() error { return ExportRecordBatch(b, new(CArrowDeviceArray), nil) },
		"Array.Slice":             func() error { _, err := a.Slice(0, 0); return err },
		"Array.CountNulls":        func() error { _, err := a.CountNulls(ctx); return err },
		"Array.View":              func() error { _, err := a.View(ctx); return err },
		"Array.NumBytes":          func() error { _, err := a.NumBytes(ctx); return err },
		"Array.CopyToHost":        func() error { _, err := a.CopyToHost(ctx, nil); return err },
		"Array.CopyTo":            func() error { _, err := a.CopyTo(ctx, device.CPUDevice()); return err },
		"Array export":            func() error { return ExportArray(a, new(CArrowDeviceArray), nil) },
	} {
		what, _, _ := strings.Cut(strings.ReplaceAll(name, " ", "."), ".")
		assert.NotPanics(t, func() {
			err := call()
			assert.ErrorIs(t, err, ErrReleased, name)
			assert.ErrorContains(t, err, ": "+what+": invalid: already released", name)
		}, name)
	}
	for name, call := range map[string]func(){
		"RecordBatch":              func() { b.Column(0) },
		"RecordBatch.WithMetadata": func() { b.WithMetadata(arrow.Metadata{}) },
		"Array":                    func() { a.Child(0) },
	} {
		what, _, _ := strings.Cut(name, ".")
		func() {
			defer func() {
				err, _ := recover().(error)
				assert.ErrorIs(t, err, ErrReleased, name)
				assert.ErrorContains(t, err, ": "+what+": invalid: already released", name)
			}()
			call()
		}()
	}
}
