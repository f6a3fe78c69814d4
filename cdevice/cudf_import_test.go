package cdevice_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// habits are how a column without rows comes from libcudf, which has no buffers for it, or keeps what it had.
type habits struct{ nullOffsets, emptyMask bool }

// cuDFExport is an array, or a batch of it, in structs as libcudf's to_arrow_device makes them: each in memory of
// its own, with buffers in the private data; exact null counts, no bitmap where nothing is null, NULL for
// data of no bytes, no offset; and sync_event as the address of an event in the private data, which ends with it.
type cuDFExport struct {
	*arena
	habits
	gpu      *cudaalloc.Device
	device   *cdevice.CArrowDeviceArray
	event    []uintptr // the cudaEvent_t in the private data
	releases []int64   // of the root, of anything below
	owned    []interface{ free() }
}

type freed func()

func (f freed) free() { f() }

// exportedByCuDF puts the array on the GPU, as the column of a table if that is set.
func exportedByCuDF(t *testing.T, gpu *cudaalloc.Device, arr arrow.Array, table bool, h habits) *cuDFExport {
	t.Helper()
	x := &cuDFExport{arena: newArena(), habits: h, gpu: gpu}
	x.device = &allocC[cdevice.CArrowDeviceArray](x.arena, 1)[0]
	x.releases, x.event = allocC[int64](x.arena, 2), allocC[uintptr](x.arena, 1)
	s := newStream(t, gpu)
	root := abi.As[abi.ArrowArray](&x.device.Array)
	if table {
		*root = abi.ArrowArray{Length: int64(arr.Len()), NBuffers: 1, NChildren: 1}
		root.Buffers = sliceAddress(allocC[uintptr](x.arena, 1))
		root.Children = sliceAddress([]uintptr{0})
		entries := allocC[uintptr](x.arena, 1)
		child := allocC[abi.ArrowArray](x.arena, 1)
		entries[0], root.Children = sliceAddress(child), sliceAddress(entries)
		x.fill(t, &child[0], arr.Data(), s)
	} else {
		x.fill(t, root, arr.Data(), s)
	}
	root.Release, root.PrivateData = cpeer.CountArrayRelease, sliceAddress(x.releases)
	e, err := gpu.NewEvent()
	require.NoError(t, err)
	require.NoError(t, s.Record(e))
	x.event[0] = e.Handle()
	x.owned = append(x.owned, freed(func() { assert.NoError(t, e.Close()) }))
	x.device.DeviceType, x.device.DeviceID, x.device.SyncEvent = int32(device.CUDA), gpu.ID().Ordinal, sliceAddress(x.event)
	return x
}

// release is the producer's release: its event and memory end, and the address of the event then holds anything.
func (x *cuDFExport) release(callback func()) {
	callback()
	x.event[0] = 0xdead
	for _, o := range x.owned {
		o.free()
	}
}

// fill makes the struct of an array that has no offset.
func (x *cuDFExport) fill(t *testing.T, to *abi.ArrowArray, d arrow.ArrayData, s device.Stream) {
	*to = abi.ArrowArray{Length: int64(d.Len()), NullCount: int64(d.NullN()), Release: cpeer.CountArrayRelease, PrivateData: sliceAddress(x.releases[1:])}
	if d.DataType().ID() == arrow.NULL {
		return
	}
	buffers := d.Buffers()
	pointers := allocC[uintptr](x.arena, len(buffers))
	for i, b := range buffers {
		offsets := i == 1 && len(buffers) == 3 || d.DataType().ID() == arrow.LIST && i == 1
		switch {
		case i == 0 && d.Len() == 0 && x.emptyMask:
			pointers[i] = x.put(t, nil, s)
		case i == 0 && d.NullN() == 0:
		case d.Len() > 0 && b != nil && b.Len() > 0:
			pointers[i] = x.put(t, b.Bytes(), s)
		case d.Len() == 0 && offsets && !x.nullOffsets:
			pointers[i] = x.put(t, make([]byte, 8), s)
		}
	}
	to.NBuffers, to.Buffers = int64(len(pointers)), sliceAddress(pointers)
	if d.DataType().ID() == arrow.DICTIONARY {
		values := allocC[abi.ArrowArray](x.arena, 1)
		to.Dictionary = sliceAddress(values)
		x.fill(t, &values[0], d.Dictionary(), s)
		return
	}
	entries := allocC[uintptr](x.arena, len(d.Children())+1)
	for i, c := range d.Children() {
		child := allocC[abi.ArrowArray](x.arena, 1)
		entries[i] = sliceAddress(child)
		x.fill(t, &child[0], c, s)
	}
	if to.NChildren = int64(len(d.Children())); to.NChildren > 0 {
		to.Children = sliceAddress(entries)
	}
}

// put copies bytes to the GPU.
func (x *cuDFExport) put(t *testing.T, b []byte, s device.Stream) uintptr {
	m := filled(t, x.gpu, s, append(b[:len(b):len(b)], make([]byte, 64)...))
	x.owned = append(x.owned, freed(func() { assert.NoError(t, m.Free(s)) })) // in the order of its stream, as libcudf frees
	return uintptr(m.Ptr())
}

// schemaOfCuDF is the schema of a column as libcudf makes it: without a name, nullable if it has a bitmap.
func schemaOfCuDF(arr arrow.Array, table bool) (*cdata.CArrowSchema, error) {
	s := new(cdata.CArrowSchema)
	f := arrow.Field{Type: arr.DataType(), Nullable: arr.NullN() > 0}
	if table {
		return s, cdevice.ExportSchema(arrow.NewSchema([]arrow.Field{f}, nil), s)
	}
	return s, cdevice.ExportField(f, s)
}

// importedFromCuDF imports the array, or the column of the table.
func importedFromCuDF(t *testing.T, x *cuDFExport, arr arrow.Array, table bool) *cdevice.Array {
	t.Helper()
	schema, err := schemaOfCuDF(arr, table)
	require.NoError(t, err)
	opts := []cdevice.ImportOption{cdevice.WithDevice(x.gpu), cdevice.WithReleaser(x.release)}
	if !table {
		a, err := cdevice.ImportArray(x.device, schema, opts...)
		require.NoError(t, err)
		return a
	}
	b, err := cdevice.ImportRecordBatch(x.device, schema, opts...)
	require.NoError(t, err)
	defer b.Release()
	assert.EqualValues(t, arr.Len(), b.NumRows())
	return b.Column(0)
}

// cuDFTypes are the cases of types that libcudf exports.
var cuDFTypes = []string{
	"null", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float32", "float64",
	"date32", "timestamp_s", "timestamp_ms", "timestamp_us", "timestamp_ns", "duration_s", "duration_ms", "duration_us", "duration_ns",
	"decimal32", "decimal64", "decimal128", "utf8", "large_utf8", "list", "list_utf8", "list_struct", "struct", "struct_nested",
	"dictionary_int8", "dictionary_int16", "dictionary_int32", "dictionary_int64", "list_dictionary", "struct_dictionary",
}

// Every type that libcudf exports comes in from structs as it makes them, is released once, and its event is not
// read after that.
func TestImportFromCuDF(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	for _, name := range cuDFTypes {
		t.Run(name, func(t *testing.T) {
			for _, v := range []cases.Variant{cases.Nulls, cases.Valid, cases.Empty} {
				want, err := casesByName[name].Array(memory.DefaultAllocator, v)
				require.NoError(t, err)
				for _, h := range []habits{{}, {nullOffsets: true}, {emptyMask: true}} {
					for _, table := range []bool{false, true} {
						x := exportedByCuDF(t, gpu, want, table, h)
						a := importedFromCuDF(t, x, want, table)
						require.NoError(t, a.ValidateFull(background))
						sameOnHost(t, want, a)
						assert.EqualValues(t, want.NullN(), a.NullCount())
						fitted, err := a.ForCuDF(background)
						require.NoError(t, err)
						part, err := a.Slice(a.Len()/2, a.Len())
						require.NoError(t, err)
						a.Release()
						assert.Zero(t, x.releases[0])
						sameOnHost(t, array.NewSlice(want, part.Offset(), int64(want.Len())), part)
						part.Release()
						require.NoError(t, gpu.Flush(background))
						assert.Equal(t, []int64{1, 0}, x.releases, "releases of the root, and below")
						sameOnHost(t, want, fitted)
						fitted.Release()
						x.free()
					}
				}
				want.Release()
			}
		})
	}
}

// The address of an event in a producer's private data is read as long as the memory is held, and by then the
// event is the producer's last one: libcudf records it in the same place.
func TestGPUImportFromCuDFWaitsForItsEvent(t *testing.T) {
	checkLeaks(t)
	want := fromJSON(t, arrow.BinaryTypes.String, `["a","bb",null]`)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		x := exportedByCuDF(t, gpu, want, true, habits{})
		a := importedFromCuDF(t, x, want, true)
		assert.Zero(t, abi.As[abi.ArrowArray](&x.device.Array).Release, "the struct is moved")
		*x.device = cdevice.CArrowDeviceArray{} // the memory of the struct is the caller's, and reused
		s := newStream(t, gpu)
		require.NoError(t, a.WaitOn(s))
		copied, err := a.CopyTo(background, gpu, cdevice.WithStream(s))
		require.NoError(t, err)
		a.Release()
		require.NoError(t, gpu.Flush(background))
		assert.Equal(t, []int64{1, 0}, x.releases)
		sameOnHost(t, want, copied)
		copied.Release()
		x.free()
	})
}
