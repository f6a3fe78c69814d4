package cdevice_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// Structs of the C data interface, without a device.

// pair is a batch of two columns, as a struct whose second child is nested.
func pair(t *testing.T) arrow.RecordBatch {
	t.Helper()
	points := fromJSON(t, pointType, `[{"x":1,"s":"a"},{"x":2,"s":"b"}]`)
	numbers := fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,null]`)
	fields := []arrow.Field{{Name: "n", Type: numbers.DataType(), Nullable: true}, {Name: "p", Type: pointType, Nullable: true}}
	rec := array.NewRecordBatch(arrow.NewSchema(fields, nil), []arrow.Array{numbers, points}, 2)
	t.Cleanup(rec.Release)
	return rec
}

// The exported struct is that of the device export, and ends with its last member.
func TestPlainExportIsTheArrayOfADeviceExport(t *testing.T) {
	checkLeaks(t)
	b := wrap(t, pair(t))
	both := garbageArray()
	require.NoError(t, cdevice.ExportRecordBatch(b, cdevice.ArrayFromPtr(addressOf(&both.Array)), nil))
	defer cdevice.ReleaseStruct(both)
	untouched := garbageArray()
	untouched.Array = both.Array
	assert.Equal(t, *untouched, *both, "nothing is written behind an ArrowArray")

	out := garbageArray()
	require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
	defer cdevice.ReleaseStruct(out)
	for i := range 2 {
		want, got := *abi.At[abi.ArrowArray](children(abi.As[abi.ArrowArray](&out.Array))[i]), *abi.At[abi.ArrowArray](children(abi.As[abi.ArrowArray](&both.Array))[i])
		want.PrivateData, got.PrivateData, want.Children, got.Children = 0, 0, 0, 0
		assert.Equal(t, want, got)
	}
	assert.Equal(t, out.Array.Release, both.Array.Release)
}

// A producer's struct is released once, by the last user, through the function of WithReleaser.
func TestPlainImportOptions(t *testing.T) {
	checkLeaks(t)
	for _, w := range []way{asArray, asBatch} {
		f := foreignCase(t, "struct_nested", w)
		f.kind = plainKind
		calls := 0
		got, err := validated(f.importKnown(cdevice.WithDevice(device.CPUDevice()),
			cdevice.WithReleaser(func(release func()) { calls++; release() })))
		require.NoError(t, err)
		assert.Zero(t, f.counts[0])
		got.Release()
		assertReleased(t, f, 1)
		assert.Equal(t, 1, calls)

		f.restore()
		got, err = f.importKnown(cdevice.WithDevice(gpuOnly{device.CPUDevice()}), cdevice.WithReleaser(func(release func()) { calls++; release() }))
		assert.Nil(t, got)
		assert.EqualError(t, err, "cdevice: import: WithDevice = cuda:3, want the CPU, where the memory of an ArrowArray is: invalid")
		assert.ErrorIs(t, err, arrow.ErrInvalid)
		assertReleased(t, f, 1)
		assert.Equal(t, 2, calls)
		f.free()
	}
}

// The wait of AsCPU before a plain export, and the end of that wait.

func TestPlainExportWantsNoEvent(t *testing.T) {
	checkLeaks(t)
	event := &testEvent{}
	testEvents[31] = event
	a, _ := onDevice(t, extDev, 31)
	defer a.Release()
	out, schema := garbagePlain(), garbageSchema()
	err := cdevice.ExportArray(a, out, schema)
	assert.ErrorIs(t, err, arrow.ErrInvalid)
	assert.ErrorContains(t, err, "cdevice: export: Array.sync_event = 0x")
	assert.ErrorContains(t, err, ", want none: AsCPU or Synchronize waits for it")
	assert.Equal(t, *plainArray(garbagePlain()), *plainArray(out), "written only on success")
	assert.Equal(t, *garbageSchema(), *schema)
	assert.Zero(t, *event, "an export does not wait")

	require.NoError(t, exportMade(out, schema)(a.AsCPU(background)))
	assert.Equal(t, testEvent{waits: 1, closes: 1}, *event)
	back, err := cdevice.ImportArray(out, schema)
	require.NoError(t, err)
	sameOnHost(t, fromJSON(t, arrow.PrimitiveTypes.Int32, `[1,2]`), back)
	assert.Equal(t, 1, event.waits, "the plain struct has no event")
	back.Release()

	event.err = errors.New("launch failure")
	assert.ErrorIs(t, exportMade(out, schema)(a.AsCPU(background)), event.err)

	event.err = nil
	require.NoError(t, a.Synchronize(background))
	out = garbagePlain()
	require.NoError(t, cdevice.ExportArray(a, out, nil), "it has no event any more")
	cdevice.ReleaseStruct(out)
}

func TestPlainRecordBatchWantsNoEvent(t *testing.T) {
	checkLeaks(t)
	event := &testEvent{}
	testEvents[32] = event
	b := batchOnDevice(t, extDev, 32)
	defer b.Release()
	out := garbagePlain()
	assert.ErrorContains(t, cdevice.ExportRecordBatch(b, out, nil), "cdevice: export: RecordBatch.sync_event = 0x")
	require.NoError(t, exportMade(out, nil)(b.AsCPU(background)))
	assert.Equal(t, 1, event.waits)
	cdevice.ReleaseStruct(out)
}

func TestPlainExportRefusesDeviceMemory(t *testing.T) {
	checkLeaks(t)
	out := garbagePlain()
	a, _ := onDevice(t, cuda, 0)
	err := cdevice.ExportArray(a, out, nil)
	assert.ErrorIs(t, err, device.ErrNotSupported)
	assert.ErrorContains(t, err, "cdevice: export: Array.DeviceID = cuda:3, want memory that the CPU can access: the CPU cannot access memory of cuda:3: CopyTo with device.CPUDevice() copies it: not supported")
	a.Release()
	b := batchOnDevice(t, device.ID{Type: 99, Ordinal: 1}, 0)
	err = cdevice.ExportRecordBatch(b, out, nil)
	assert.ErrorIs(t, err, device.ErrNotSupported)
	assert.ErrorContains(t, err, "cdevice: export: RecordBatch.DeviceID = ")
	b.Release()
	assert.Equal(t, *plainArray(garbagePlain()), *plainArray(out))
}

// Page-locked memory is the host's to read, by the meaning of its type.
func TestPlainExportOfPinnedMemory(t *testing.T) {
	checkLeaks(t)
	a, _ := onDevice(t, pinned, 0)
	defer a.Release()
	back := plainKind.through(t, a)
	defer back.Release()
	assert.Equal(t, device.CPUDevice().ID(), back.DeviceID())
	noBackend, _ := onDevice(t, pinned, 33)
	defer noBackend.Release()
	_, err := noBackend.AsCPU(background)
	assert.ErrorIs(t, err, device.ErrNotSupported, "readable, but no backend can wait for the event")
}

func TestContextsEndAsCPU(t *testing.T) {
	checkLeaks(t)
	a, _ := onDevice(t, stuck, 1)
	defer a.Release()
	wait := func(ctx context.Context) func() error {
		return func() error {
			_, err := a.HostView(ctx)
			assert.ErrorIs(t, err, ctx.Err())
			return second(a.AsCPU(ctx))
		}
	}
	brief, cancel := context.WithTimeout(background, 20*time.Millisecond)
	defer cancel()
	late, stop := context.WithCancel(background)
	time.AfterFunc(20*time.Millisecond, stop)
	ended, cancel := context.WithCancel(background)
	cancel()
	ends(t, "a deadline", context.DeadlineExceeded, wait(brief))
	ends(t, "canceled", context.Canceled, wait(late))
	ends(t, "ended before", context.Canceled, wait(ended))

	ready := wrap(t, oneColumn(t, fromJSON(t, arrow.PrimitiveTypes.Int32, `[1]`)))
	_, err := ready.AsCPU(ended)
	assert.EqualError(t, err, "cdevice: read: context canceled", "even if there is nothing to wait for")
}
