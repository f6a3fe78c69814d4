package cdevice_test

import (
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// Structs that are Go variables of C's types, and whose addresses go to C. cgo panics if a struct holds an address of Go memory that is not
// pinned, or of a pinned object with such an address in it.

// pass exports a batch to every struct for batches, and as a stream to those for streams.
func pass(t *testing.T, b *cdevice.RecordBatch) {
	t.Helper()
	column := b.Column(0)
	defer column.Release()
	cpeer.PassDeviceArray(func(at unsafe.Pointer) {
		require.NoError(t, cdevice.ExportRecordBatch(b, (*cdevice.CArrowDeviceArray)(at), nil))
	})
	cpeer.PassDeviceArray(func(at unsafe.Pointer) {
		require.NoError(t, cdevice.ExportArray(column, (*cdevice.CArrowDeviceArray)(at), nil))
	})
	stream := func() *cdevice.RecordReader {
		b.Retain()
		r, err := cdevice.NewRecordReader(b.Schema(), b.DeviceID().Type, func(yield func(*cdevice.RecordBatch, error) bool) {
			defer b.Release()
			yield(b, nil)
		})
		require.NoError(t, err)
		return r
	}
	cpeer.PassDeviceStream(func(at unsafe.Pointer) {
		r := stream()
		defer r.Release()
		require.NoError(t, cdevice.ExportRecordReader(r, (*cdevice.CArrowDeviceArrayStream)(at)))
	})
	if !b.DeviceID().Type.CPUAccessible() {
		return
	}
	cpeer.PassArray(func(at unsafe.Pointer) {
		here, err := b.AsCPU(background)
		require.NoError(t, err)
		defer here.Release()
		require.NoError(t, cdevice.ExportRecordBatch(here, cdevice.ArrayFromPtr(uintptr(at)), nil))
	})
	cpeer.PassStream(func(at unsafe.Pointer) {
		r := stream()
		defer r.Release()
		here, err := r.AsCPU(background)
		require.NoError(t, err)
		defer here.Release()
		require.NoError(t, cdevice.ExportRecordReader(here, cdevice.ArrayStreamFromPtr(uintptr(at))))
	})
}

// Batches of each type, of each origin in memory of the CPU.
func TestStructsInGoVariables(t *testing.T) {
	checkLeaks(t)
	for _, c := range cases.All() {
		t.Run(c.Name, func(t *testing.T) {
			arr, err := c.Array(memory.DefaultAllocator, cases.Sliced)
			require.NoError(t, err)
			rec := oneColumn(t, arr)
			b := wrap(t, rec)
			pass(t, b)
			pass(t, kept(b.Slice(1, b.NumRows()))(t))
			out := garbageArray()
			require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
			pass(t, kept(cdevice.ImportRecordBatchWithSchema(out, rec.Schema()))(t))
			pass(t, kept(b.CopyTo(background, device.CPUDevice()))(t))
			cpeer.PassSchema(func(at unsafe.Pointer) {
				require.NoError(t, cdevice.ExportSchema(rec.Schema(), cdevice.SchemaFromPtr(uintptr(at))))
			})
		})
	}
	cpeer.PassHandler(func(at unsafe.Pointer) {
		s, err := cdevice.ImportAsync(background, (*cdevice.CArrowAsyncDeviceStreamHandler)(at), 1)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, s.Close(background)) })
	})
}

// Each origin of the event that a sync_event points to.
func TestGPUEventsInGoVariables(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		rec := columnsOf(memory.DefaultAllocator, 2, 700, false)
		defer rec.Release()
		copied := func() *cdevice.RecordBatch {
			return kept(cdevice.CopyToDevice(background, rec, gpu, cdevice.WithStream(newStream(t, gpu))))(t)
		}
		recorded := func() *cdevice.RecordBatch {
			return kept(copied().WithEvent(newStream(t, gpu)))(t)
		}
		for name, make := range map[string]func() *cdevice.RecordBatch{
			"copied":   copied,
			"recorded": recorded,
			"combined": func() *cdevice.RecordBatch {
				column := recorded().Column(1)
				defer column.Release()
				return kept(copied().WithColumn(rec.Schema().Field(1), column))(t)
			},
			"imported": func() *cdevice.RecordBatch {
				out := garbageArray()
				require.NoError(t, cdevice.ExportRecordBatch(recorded(), out, nil))
				return kept(cdevice.ImportRecordBatchWithSchema(out, rec.Schema(), cdevice.WithDevice(gpu)))(t)
			},
			"for cuDF": func() *cdevice.RecordBatch { return kept(recorded().ForCuDF(background))(t) },
			"of the program": func() *cdevice.RecordBatch {
				s := newStream(t, gpu)
				numbers := filled(t, gpu, s, arrow.Int64Traits.CastToBytes([]int64{10, 20}))
				e, err := gpu.NewEvent()
				require.NoError(t, err)
				require.NoError(t, s.Record(e))
				schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
				data := []cdevice.ArrayData{{Length: 2, Buffers: []device.Ptr{0, numbers.Ptr()}}}
				return kept(cdevice.NewRecordBatch(gpu, schema, 2, data, cdevice.Lifetime{Ready: e, Release: func() { assert.NoError(t, numbers.FreeAfter(nil)) }}))(t)
			},
		} {
			t.Run(name, func(t *testing.T) {
				b := make()
				require.NotZero(t, exportedEvent(t, b))
				pass(t, b)
			})
		}
	})
}

// exportedEvent is the sync_event of an export.
func exportedEvent(t *testing.T, b *cdevice.RecordBatch) uintptr {
	var out cdevice.CArrowDeviceArray
	require.NoError(t, cdevice.ExportRecordBatch(b, &out, nil))
	defer cdevice.ReleaseStruct(&out)
	return out.SyncEvent
}
