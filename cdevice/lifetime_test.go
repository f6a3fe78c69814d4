package cdevice_test

import (
	"context"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// moveOut takes a struct out of its tree, as the C data interface allows a
// consumer: a bitwise copy, and the source is marked released.
func (k kind) moveOut(addr uintptr) cArray {
	a := abi.At[abi.ArrowArray](addr)
	moved := abi.As[cdevice.CArrowDeviceArray](&abi.ArrowDeviceArray{Array: *a, DeviceID: -1, DeviceType: int32(device.CPU)})
	a.Release = 0
	if k.name == plainKind.name {
		return arrayOf[cdata.CArrowArray]{cdevice.ArrayFromPtr(addressOf(&moved.Array))}
	}
	return arrayOf[cdevice.CArrowDeviceArray]{moved}
}

func TestChildOutlivesItsParent(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		rec := oneColumn(t, fromJSON(t, pointType, `[{"x":1,"s":"a"},{"x":2,"s":"b"}]`))
		b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
		require.NoError(t, err)
		out := k.newArray()
		require.NoError(t, out.exportBatch(b, nil))
		b.Release()

		before := cdevice.ReadStats()
		column := k.moveOut(children(out.members())[0])
		grandchild := k.moveOut(children(column.members())[1])
		require.NoError(t, cpeer.ReleaseOnThread(out.members()))
		assert.Zero(t, out.members().Release)
		assert.Equal(t, before, cdevice.ReadStats(), "moved-out structs keep the block")
		column.release()
		column.release() // sees NULL
		assert.Equal(t, before, cdevice.ReadStats(), "the grandchild still does")

		arr, err := validated(grandchild.importArrayWithType(arrow.BinaryTypes.String))
		require.NoError(t, err)
		view, err := arr.HostView(background)
		require.NoError(t, err)
		assert.Equal(t, `["a","b"]`, marshal(t, view))
		view.Release()
		arr.Release()
	})
}

func TestForeignReleaseRunsOnceAfterTheLastUser(t *testing.T) {
	checkLeaks(t)
	tree := cpeer.NewTree(cpeer.Node{Length: 2, Buffers: []uintptr{0}, Children: []cpeer.Node{{Length: 2, Buffers: []uintptr{0, bridge.Zeros}}}})
	defer tree.Free()
	in := new(cdevice.CArrowDeviceArray)
	tree.Export(abi.As[abi.ArrowDeviceArray](in))
	schema := arrow.NewSchema([]arrow.Field{{Name: "c", Type: arrow.PrimitiveTypes.Int64}}, nil)
	before := cdevice.ReadStats().ImportedArrays
	b, err := cdevice.ImportRecordBatchWithSchema(in, schema)
	require.NoError(t, err)
	assert.Zero(t, in.Array.Release, "the struct was moved")

	column := b.Column(0)
	part, err := b.Slice(1, 2)
	require.NoError(t, err)
	picked, err := b.Select(0, 0)
	require.NoError(t, err)
	view, err := part.HostView(context.Background())
	require.NoError(t, err)
	kept := view.Column(0)
	kept.Retain()
	out := new(cdevice.CArrowDeviceArray)
	require.NoError(t, cdevice.ExportRecordBatch(picked, out, nil))

	for _, step := range []func(){
		b.Release, column.Release, part.Release, picked.Release, view.Release,
		func() { cdevice.ReleaseStruct(out) },
	} {
		step()
		assert.Equal(t, before+1, cdevice.ReadStats().ImportedArrays, "somebody still uses the memory")
	}
	kept.Release()
	assert.Equal(t, before, cdevice.ReadStats().ImportedArrays)
}

// An export of what was released writes nothing. (TestCallsAfterTheLastRelease has the other functions.)
func TestExportAfterReleaseWritesNothing(t *testing.T) {
	b, err := cdevice.WrapRecordBatch(oneColumn(t, fromJSON(t, arrow.PrimitiveTypes.Int32, `[1]`)), device.CPUDevice())
	require.NoError(t, err)
	column := b.Column(0)
	b.Release()
	column.Release()
	eachKind(t, func(t *testing.T, k kind) {
		out, schema := k.newArray(), garbageSchema()
		assert.ErrorContains(t, out.exportBatch(b, schema), "cdevice: export: RecordBatch: invalid: already released")
		assert.ErrorContains(t, out.exportArray(column, schema), "cdevice: export: Array: invalid: already released")
		assert.True(t, out.untouched(), "nothing was written")
		assert.Equal(t, *garbageSchema(), *schema)
	})
}

// One batch, many goroutines: exports, imports, slices and releases side by
// side. The race detector and the leak check decide.
func TestConcurrentUseOfOneBatch(t *testing.T) {
	checkLeaks(t)
	rec := oneColumn(t, fromJSON(t, pointType, `[{"x":1,"s":"a"},null,{"x":3,"s":"c"}]`))
	b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	var wg sync.WaitGroup
	for g := range 8 {
		b.Retain()
		wg.Go(func() {
			defer b.Release()
			for i := range 200 {
				part, err := b.Slice(int64(i%2), 3)
				if !assert.NoError(t, err) || !assert.NoError(t, part.ValidateFull(background)) {
					return
				}
				out := new(cdevice.CArrowDeviceArray)
				if !assert.NoError(t, cdevice.ExportRecordBatch(part, out, nil)) {
					return
				}
				part.Release()
				if g == 0 && i%50 == 0 {
					assert.NoError(t, cpeer.ReleaseOnThread(abi.As[abi.ArrowArray](&out.Array)))
					continue
				}
				back, err := cdevice.ImportRecordBatchWithSchema(out, rec.Schema())
				if !assert.NoError(t, err) {
					return
				}
				view, err := back.HostView(context.Background())
				back.Release()
				if assert.NoError(t, err) {
					assert.EqualValues(t, 3-i%2, view.NumRows())
					view.Release()
				}
			}
		})
	}
	b.Release()
	wg.Wait()
}

// A batch that was never released is a leak that ReadStats shows; the garbage collector must not
// end the process because of it.
func TestForgottenBatchIsALeakNotACrash(t *testing.T) {
	checkLeaks(t)
	before := cdevice.ReadStats()
	var owner *cdevice.RecordBatch
	func() {
		b, err := cdevice.WrapRecordBatch(oneColumn(t, fromJSON(t, arrow.PrimitiveTypes.Int32, `[1]`)), device.CPUDevice())
		require.NoError(t, err)
		column := b.Column(0)
		defer column.Release() // keeps a way to release the memory in the end
		owner = b
	}()
	for range 3 {
		runtime.GC()
	}
	assert.Equal(t, before.PinnedBatches+1, cdevice.ReadStats().PinnedBatches)
	owner.Release()
	assert.Equal(t, before, cdevice.ReadStats())
}

func TestWrappedMemoryIsPinned(t *testing.T) {
	checkLeaks(t)
	arr := fromJSON(t, arrow.BinaryTypes.StringView, `["a text that is longer than twelve bytes",null]`)
	var addresses []uintptr
	for _, buf := range arr.Data().Buffers() {
		addresses = append(addresses, addressOf(&buf.Bytes()[0]))
	}
	for _, addr := range addresses {
		require.False(t, cpeer.IsPinned(addr), "the test must see unpinned memory as such")
	}
	a, err := cdevice.WrapArray(arr, device.CPUDevice())
	require.NoError(t, err)
	out := new(cdevice.CArrowDeviceArray)
	require.NoError(t, cdevice.ExportArray(a, out, nil))
	a.Release()
	addresses = append(addresses, out.Array.Buffers)
	addresses = append(addresses, abi.Slice[uintptr](out.Array.Buffers, int(out.Array.NBuffers))...)
	for i, addr := range addresses {
		assert.True(t, cpeer.IsPinned(addr), "address %d", i)
	}
	cdevice.ReleaseStruct(out)
	for _, addr := range addresses[:len(arr.Data().Buffers())] {
		assert.False(t, cpeer.IsPinned(addr), "and not for longer")
	}
}

// Without memory for the C structs nothing is written, and nothing is left.
func TestNoMemoryForTheStructs(t *testing.T) {
	checkLeaks(t)
	columns := make([]arrow.Array, 100)
	fields := make([]arrow.Field, len(columns))
	for i := range columns {
		columns[i] = fromJSON(t, arrow.PrimitiveTypes.Int32, `[1]`)
		fields[i] = arrow.Field{Type: arrow.PrimitiveTypes.Int32}
	}
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 1)
	defer rec.Release()
	b := wrap(t, rec)
	eachKind(t, func(t *testing.T, k kind) {
		before := cdevice.ReadStats()
		// 100 columns need more room as arrays (88 bytes each) than as schemas (80,
		// and their formats): the second limit lets the schema through.
		for _, limit := range []uintptr{0, 8800} {
			out, schema := k.newArray(), garbageSchema()
			restore := bridge.LimitBlocks(limit)
			withSchema := out.exportBatch(b, schema)
			without := out.exportBatch(b, nil)
			restore()
			assert.ErrorIs(t, withSchema, syscall.ENOMEM)
			assert.ErrorIs(t, without, syscall.ENOMEM)
			assert.True(t, out.untouched())
			assert.Equal(t, *garbageSchema(), *schema)
			assert.Equal(t, before, cdevice.ReadStats())
		}
	})
}

func TestReleaseOfNoStruct(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		k.noArray.release()
		k.noStream.release()
		out, stream := k.newArray(), k.newStream()
		out.members().Release, stream.callbacks().Release = 0, 0
		out.release()
		stream.release()
	})
	assert.Nil(t, cdevice.ArrayFromPtr(0))
	assert.Nil(t, cdevice.ArrayStreamFromPtr(0))
	assert.Nil(t, cdevice.DeviceArrayFromPtr(0))
	assert.Nil(t, cdevice.DeviceArrayStreamFromPtr(0))
}
