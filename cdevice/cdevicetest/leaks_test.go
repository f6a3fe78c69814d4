package cdevicetest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
)

// recorder is a test that records its errors, and whose cleanup the test runs.
type recorder struct {
	testing.TB
	errors   []string
	cleanups []func()
}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}
func (r *recorder) Helper()          {}
func (r *recorder) Cleanup(f func()) { r.cleanups = append(r.cleanups, f) }

// finish runs the cleanups and returns the errors of the test.
func (r *recorder) finish() string {
	for _, cleanup := range slices.Backward(r.cleanups) {
		cleanup()
	}
	return strings.Join(r.errors, "\n")
}

// newBatch is a batch of Go memory.
func newBatch(t *testing.T) *cdevice.RecordBatch {
	t.Helper()
	b := array.NewInt64Builder(memory.DefaultAllocator)
	defer b.Release()
	b.AppendValues([]int64{1, 2, 3}, nil)
	column := b.NewArray()
	defer column.Release()
	schema := arrow.NewSchema([]arrow.Field{{Name: "x", Type: arrow.PrimitiveTypes.Int64}}, nil)
	rec := array.NewRecordBatch(schema, []arrow.Array{column}, 3)
	defer rec.Release()
	batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	return batch
}

func TestCheckLeaksIsSilentWhereAllIsReleased(t *testing.T) {
	kept := newBatch(t) // made before the check
	defer kept.Release()
	fake := &recorder{TB: t}
	cdevicetest.CheckLeaks(fake)
	b := newBatch(t)
	column := b.Column(0)
	fake.Cleanup(column.Release) // later than the check, so done before it
	b.Release()
	assert.Empty(t, fake.finish())
	assert.Empty(t, cdevice.LiveObjects())
	assert.False(t, cdevice.TraceObjects(false), "as it was")
}

// newReader is a reader of no batches.
func newReader(t *testing.T) *cdevice.RecordReader {
	t.Helper()
	r, err := cdevice.NewRecordReader(arrow.NewSchema(nil, nil), device.CPU, func(func(*cdevice.RecordBatch, error) bool) {})
	require.NoError(t, err)
	return r
}

func exportedStream(t *testing.T) *cdevice.CArrowDeviceArrayStream {
	t.Helper()
	r := newReader(t)
	defer r.Release()
	stream := new(cdevice.CArrowDeviceArrayStream)
	require.NoError(t, cdevice.ExportRecordReader(r, stream))
	return stream
}

// forget is the object that a report must name.
func forget(t *testing.T) *cdevice.RecordBatch { return newBatch(t) }

func TestCheckLeaksPrintsTheStackOfEachObject(t *testing.T) {
	ctx := context.Background()
	leaks := map[string]func() (release func()){
		"RecordBatch": func() func() { return forget(t).Release },
		"Array": func() func() {
			b := forget(t)
			defer b.Release()
			return b.Column(0).Release
		},
		"HostView": func() func() {
			var arr cdevice.CArrowDeviceArray
			var sch cdata.CArrowSchema
			b := forget(t)
			require.NoError(t, cdevice.ExportRecordBatch(b, &arr, &sch))
			b.Release()
			in, err := cdevice.ImportRecordBatch(&arr, &sch)
			require.NoError(t, err)
			defer in.Release()
			rec, err := in.HostView(ctx)
			require.NoError(t, err)
			return rec.Release
		},
		"exported ArrowDeviceArray": func() func() {
			arr := new(cdevice.CArrowDeviceArray)
			b := forget(t)
			defer b.Release()
			require.NoError(t, cdevice.ExportRecordBatch(b, arr, nil))
			return func() { cdevice.ReleaseStruct(arr) }
		},
		"exported ArrowSchema": func() func() {
			sch := new(cdata.CArrowSchema)
			b := forget(t)
			defer b.Release()
			require.NoError(t, cdevice.ExportSchema(b.Schema(), sch))
			return func() { cdevice.ReleaseStruct(sch) }
		},
		"exported ArrowDeviceArrayStream": func() func() {
			stream := exportedStream(t)
			return func() { cdevice.ReleaseStruct(stream) }
		},
		"imported ArrowDeviceArrayStream": func() func() {
			in, err := cdevice.ImportRecordReader(exportedStream(t))
			require.NoError(t, err)
			return in.Release
		},
		"HostReader": func() func() {
			r := newReader(t)
			defer r.Release()
			return r.HostReader(ctx, nil).Release
		},
		"AsyncStream": func() func() {
			var handler cdevice.CArrowAsyncDeviceStreamHandler
			s, err := cdevice.ImportAsync(ctx, &handler, 0)
			require.NoError(t, err)
			return func() {
				cdevice.ReleaseStruct(&handler)
				require.NoError(t, s.Close(ctx))
			}
		},
	}
	fake := &recorder{TB: t}
	cdevicetest.CheckLeaks(fake)
	var release []func()
	for _, leak := range leaks {
		release = append(release, leak())
	}
	started := time.Now()
	report := fake.finish()
	assert.GreaterOrEqual(t, time.Since(started), time.Second, "it waits for memory that ends later")
	for kind := range leaks {
		assert.Regexp(t, "\n"+kind+`, made at \S+ \(leaks_test\.go:\d+\), in cdevice\.\S+:\n`, report)
	}
	assert.Contains(t, report, "ExportedStreams: 2 more than before\n", "the imported one is exported too")
	assert.Contains(t, report, "TestCheckLeaksPrintsTheStackOfEachObject.func1\n")
	assert.Contains(t, report, "leaks_test.go:")
	for _, f := range release {
		f()
	}
	assert.Empty(t, cdevice.LiveObjects())
}

func TestCheckLeaksCountsTheLeaksOfALoop(t *testing.T) {
	fake := &recorder{TB: t}
	cdevicetest.CheckLeaks(fake)
	var batches []*cdevice.RecordBatch
	for range 12 {
		batches = append(batches, forget(t))
	}
	alone := forget(t)
	report := fake.finish()
	const line = `made at \S+\.newBatch \(leaks_test\.go:\d+\), in cdevice\.WrapRecordBatch:\n`
	assert.Regexp(t, `\nRecordBatch: 12 leaks, `+line, report)
	assert.Regexp(t, `\nRecordBatch, `+line, report)
	assert.Equal(t, 2, strings.Count(report, "RecordBatch: 12")+strings.Count(report, "RecordBatch, "), report)
	for _, b := range append(batches, alone) {
		b.Release()
	}
}

func TestCheckLeaksWaitsForWhatEndsLater(t *testing.T) {
	fake := &recorder{TB: t}
	cdevicetest.CheckLeaks(fake)
	b := newBatch(t)
	time.AfterFunc(50*time.Millisecond, b.Release)
	assert.Empty(t, fake.finish())
}

func TestChecksNest(t *testing.T) {
	outer, inner := &recorder{TB: t}, &recorder{TB: t}
	cdevicetest.CheckLeaks(outer)
	cdevicetest.CheckLeaks(inner)
	assert.Empty(t, inner.finish())
	assert.True(t, cdevice.TraceObjects(true), "the outer check goes on")
	assert.Empty(t, outer.finish())
	assert.False(t, cdevice.TraceObjects(false))
}
