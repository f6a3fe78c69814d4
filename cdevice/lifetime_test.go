package cdevice_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
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
func moveOut(addr uintptr) *cdevice.CArrowDeviceArray {
	a := abi.At[abi.ArrowArray](addr)
	moved := abi.As[cdevice.CArrowDeviceArray](&abi.ArrowDeviceArray{Array: *a, DeviceID: -1, DeviceType: int32(device.CPU)})
	a.Release = 0
	return moved
}

// moveOut is moveOut of a struct of either kind.
func (k kind) moveOut(addr uintptr) cArray {
	moved := moveOut(addr)
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

func TestParentOutlivesItsChild(t *testing.T) {
	checkLeaks(t)
	a, err := cdevice.WrapArray(fromJSON(t, pointType, `[{"x":1,"s":"a"}]`), device.CPUDevice())
	require.NoError(t, err)
	defer a.Release()
	var out cdevice.CArrowDeviceArray
	require.NoError(t, cdevice.ExportArray(a, &out, nil))
	before := cdevice.ReadStats()
	cdevice.ReleaseStruct(moveOut(children(abi.As[abi.ArrowArray](&out.Array))[0]))
	assert.Equal(t, before, cdevice.ReadStats())
	cdevice.ReleaseStruct(&out)
	assert.Equal(t, before.ExportedArrays-1, cdevice.ReadStats().ExportedArrays)
}

func TestDictionaryOutlivesItsArray(t *testing.T) {
	checkLeaks(t)
	dt := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int8, ValueType: arrow.BinaryTypes.String}
	a, err := cdevice.WrapArray(fromJSON(t, dt, `["x","y","x"]`), device.CPUDevice())
	require.NoError(t, err)
	defer a.Release()
	var out cdevice.CArrowDeviceArray
	require.NoError(t, cdevice.ExportArray(a, &out, nil))
	dictionary := moveOut(out.Array.Dictionary)
	cdevice.ReleaseStruct(&out)
	arr, err := cdevice.ImportArrayWithType(dictionary, arrow.BinaryTypes.String)
	require.NoError(t, err)
	defer arr.Release()
	view, err := arr.HostView(context.Background())
	require.NoError(t, err)
	defer view.Release()
	assert.Equal(t, `["x","y"]`, marshal(t, view))
}

func TestSecondReleaseOfTheSameStructIsIgnored(t *testing.T) {
	checkLeaks(t)
	a, err := cdevice.WrapArray(fromJSON(t, arrow.PrimitiveTypes.Int32, `[1]`), device.CPUDevice())
	require.NoError(t, err)
	defer a.Release()
	var out cdevice.CArrowDeviceArray
	require.NoError(t, cdevice.ExportArray(a, &out, nil))
	callback := out.Array.Release
	cdevice.ReleaseStruct(&out)
	before := cdevice.ReadStats()
	cdevice.ReleaseStruct(&out) // sees NULL
	assert.NotZero(t, callback)
	assert.Equal(t, before, cdevice.ReadStats())
}

func TestReleaseOnAForeignThread(t *testing.T) {
	checkLeaks(t)
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	for range 20 {
		builder := array.NewInt64Builder(mem)
		builder.AppendValues([]int64{1, 2, 3}, nil)
		arr := builder.NewArray()
		builder.Release()
		a, err := cdevice.WrapArray(arr, device.CPUDevice())
		require.NoError(t, err)
		arr.Release()
		out := new(cdevice.CArrowDeviceArray)
		require.NoError(t, cdevice.ExportArray(a, out, nil))
		a.Release()
		require.NoError(t, cpeer.ReleaseOnThread(abi.As[abi.ArrowArray](&out.Array)))
		assert.Zero(t, out.Array.Release)
	}
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

func TestUseAfterReleaseIsAnError(t *testing.T) {
	b, err := cdevice.WrapRecordBatch(oneColumn(t, fromJSON(t, arrow.PrimitiveTypes.Int32, `[1]`)), device.CPUDevice())
	require.NoError(t, err)
	column := b.Column(0)
	b.Release()
	column.Release()
	for name, use := range map[string]func() error{
		"Slice":            func() error { return second(b.Slice(0, 0)) },
		"Array.Slice":      func() error { return second(column.Slice(0, 0)) },
		"Select":           func() error { return second(b.Select(0)) },
		"HostView":         func() error { return second(b.HostView(background)) },
		"Array.HostView":   func() error { return second(column.HostView(background)) },
		"CopyToHost":       func() error { return second(b.CopyToHost(background, nil)) },
		"Array.CopyToHost": func() error { return second(column.CopyToHost(background, nil)) },
	} {
		assert.ErrorIs(t, use(), cdevice.ErrReleased, name)
	}
	eachKind(t, func(t *testing.T, k kind) {
		out, schema := k.newArray(), garbageSchema()
		for want, err := range map[string]error{
			"cdevice: export: RecordBatch: invalid: already released": out.exportBatch(b, schema),
			"cdevice: export: Array: invalid: already released":       out.exportArray(column, schema),
		} {
			assert.ErrorContains(t, err, want)
			assert.ErrorIs(t, err, cdevice.ErrReleased)
		}
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
				if !assert.NoError(t, err) {
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

// Siblings released from several threads at once free their block once.
func TestConcurrentReleaseOfMovedChildren(t *testing.T) {
	checkLeaks(t)
	columns := make([]arrow.Array, 64)
	fields := make([]arrow.Field, len(columns))
	for i := range columns {
		columns[i] = fromJSON(t, arrow.PrimitiveTypes.Int32, `[1,2,3]`)
		fields[i] = arrow.Field{Name: fmt.Sprint(i), Type: arrow.PrimitiveTypes.Int32, Nullable: true}
	}
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, 3)
	defer rec.Release()
	b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	defer b.Release()
	for range 50 {
		out := new(cdevice.CArrowDeviceArray)
		require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
		var wg sync.WaitGroup
		for _, addr := range children(abi.As[abi.ArrowArray](&out.Array)) {
			moved := moveOut(addr)
			wg.Go(func() { cdevice.ReleaseStruct(moved) })
		}
		wg.Go(func() { cdevice.ReleaseStruct(out) })
		wg.Wait()
	}
}

// With the collector running all the time, memory of the Go heap stays at the exported address for
// as long as C holds the struct.
func TestGoMemoryStaysWhileCHoldsIt(t *testing.T) {
	checkLeaks(t)
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	const rows = 1000
	held := make([]*cdevice.CArrowDeviceArray, 50)
	for i := range held {
		builder := array.NewInt64Builder(memory.NewGoAllocator())
		for k := range rows {
			builder.Append(int64(i*rows + k))
		}
		arr := builder.NewArray()
		builder.Release()
		a, err := cdevice.WrapArray(arr, device.CPUDevice())
		require.NoError(t, err)
		arr.Release()
		held[i] = new(cdevice.CArrowDeviceArray)
		require.NoError(t, cdevice.ExportArray(a, held[i], nil))
		a.Release() // from here on only the C struct keeps the memory
	}
	var garbage [][]int64
	for range 10 {
		runtime.GC()
		for range 2 * len(held) { // takes the place of what the collector has freed
			garbage = append(garbage, slices.Repeat([]int64{-1}, rows))
		}
	}
	require.NotEmpty(t, garbage)
	for i, out := range held {
		values := abi.Slice[int64](abi.Slice[uintptr](out.Array.Buffers, 2)[1], rows)
		for k, v := range values {
			require.EqualValues(t, i*rows+k, v)
		}
		cdevice.ReleaseStruct(out)
	}
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

func TestWrapBorrowsTheRecordBatch(t *testing.T) {
	rec := twoColumns(t)
	b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	b.Release()
	assert.EqualValues(t, 2, len(rec.Columns()), "still the caller's")
	column := rec.Column(0)
	a, err := cdevice.WrapArray(column, device.CPUDevice())
	require.NoError(t, err)
	a.Release()
	assert.Len(t, column.Data().Buffers(), 2)
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
