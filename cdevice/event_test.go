package cdevice_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

func TestImportAndReexportWaitForNothing(t *testing.T) {
	checkLeaks(t)
	event := &testEvent{}
	testEvents[11] = event
	for _, id := range []device.ID{extDev, cuda, {Type: 99, Ordinal: 1 << 40}} {
		a, cell := onDevice(t, id, 11)
		assert.Equal(t, id, a.DeviceID())
		var out cdevice.CArrowDeviceArray
		require.NoError(t, cdevice.ExportArray(a, &out, nil))
		assert.EqualValues(t, id.Type, out.DeviceType)
		assert.Equal(t, id.Ordinal, out.DeviceID)
		assert.Equal(t, addressOf(cell), out.SyncEvent, "the event travels along")
		cdevice.ReleaseStruct(&out)
		part, err := a.Slice(1, 2)
		require.NoError(t, err)
		require.NoError(t, cdevice.ExportArray(part, &out, nil))
		assert.Equal(t, addressOf(cell), out.SyncEvent, "with a slice too")
		assert.Equal(t, id, part.DeviceID())
		cdevice.ReleaseStruct(&out)
		part.Release()
		a.Release()
	}
	assert.Zero(t, event.waits)
}

func TestPartsOfABatchKeepDeviceAndEvent(t *testing.T) {
	checkLeaks(t)
	rec := twoColumns(t)
	in := new(cdevice.CArrowDeviceArray)
	require.NoError(t, cdevice.ExportRecordBatch(wrap(t, rec), in, nil))
	cell := new(uintptr)
	in.DeviceType, in.DeviceID, in.SyncEvent = int32(cuda.Type), cuda.Ordinal, addressOf(cell)
	b, err := cdevice.ImportRecordBatchWithSchema(in, rec.Schema())
	require.NoError(t, err)
	defer b.Release()
	part, err := b.Slice(1, 3)
	require.NoError(t, err)
	defer part.Release()
	picked, err := part.Select(1)
	require.NoError(t, err)
	defer picked.Release()
	column := picked.Column(0)
	defer column.Release()
	for _, export := range []func(*cdevice.CArrowDeviceArray) error{
		func(out *cdevice.CArrowDeviceArray) error { return cdevice.ExportRecordBatch(b, out, nil) },
		func(out *cdevice.CArrowDeviceArray) error { return cdevice.ExportRecordBatch(part, out, nil) },
		func(out *cdevice.CArrowDeviceArray) error { return cdevice.ExportRecordBatch(picked, out, nil) },
		func(out *cdevice.CArrowDeviceArray) error { return cdevice.ExportArray(column, out, nil) },
	} {
		var out cdevice.CArrowDeviceArray
		require.NoError(t, export(&out))
		assert.Equal(t, addressOf(cell), out.SyncEvent)
		assert.EqualValues(t, cuda.Type, out.DeviceType)
		assert.Equal(t, cuda.Ordinal, out.DeviceID)
		cdevice.ReleaseStruct(&out)
	}
}

// Arrow C++ rejects NULL offsets even of empty arrays: an array imported with NULL is exported with
// zeros, and the bitmap stays NULL.
func TestNullBuffersAreReplacedOnTheCPU(t *testing.T) {
	checkLeaks(t)
	for _, at := range []device.ID{device.CPUDevice().ID(), cuda} {
		tree := cpeer.NewTree(cpeer.Node{Buffers: []uintptr{0, 0, 0}})
		defer tree.Free()
		in := new(cdevice.CArrowDeviceArray)
		tree.Export(abi.As[abi.ArrowDeviceArray](in))
		in.DeviceType, in.DeviceID = int32(at.Type), at.Ordinal
		a, err := cdevice.ImportArrayWithType(in, arrow.BinaryTypes.String)
		require.NoError(t, err)
		defer a.Release()
		var out cdevice.CArrowDeviceArray
		require.NoError(t, cdevice.ExportArray(a, &out, nil))
		defer cdevice.ReleaseStruct(&out)
		buffers := abi.Slice[uintptr](out.Array.Buffers, 3)
		assert.Zero(t, buffers[0])
		for _, addr := range buffers[1:] {
			if at.Type == device.CPU {
				assert.Zero(t, *abi.At[int32](addr))
			} else {
				assert.Zero(t, addr, "a host address has no place on another device")
			}
		}
	}
}

func TestViewAndCopyWaitForTheEvent(t *testing.T) {
	checkLeaks(t)
	event := &testEvent{}
	testEvents[12] = event
	a, _ := onDevice(t, extDev, 12)
	defer a.Release()
	view, err := a.HostView(context.Background())
	require.NoError(t, err)
	defer view.Release()
	assert.Equal(t, `[1,2]`, marshal(t, view))
	assert.Equal(t, testEvent{waits: 1, closes: 1}, *event)
	copied, err := a.CopyToHost(context.Background(), nil)
	require.NoError(t, err)
	defer copied.Release()
	assert.Equal(t, testEvent{waits: 2, closes: 2}, *event)
}

func TestFailedWaitIsAnError(t *testing.T) {
	checkLeaks(t)
	event := &testEvent{err: errors.New("launch failure")}
	testEvents[13] = event
	a, _ := onDevice(t, extDev, 13)
	defer a.Release()
	ctx := context.Background()
	_, err := a.HostView(ctx)
	assert.ErrorIs(t, err, event.err)
	_, err = a.CopyToHost(ctx, nil)
	assert.ErrorIs(t, err, event.err)
	out := cdevice.CArrowDeviceArray{DeviceID: 7}
	assert.ErrorIs(t, a.Synchronize(ctx), event.err)
	_, err = a.AsCPU(ctx)
	assert.ErrorIs(t, err, event.err)
	require.NoError(t, cdevice.ExportArray(a, &out, nil), "which does not wait")
	assert.NotZero(t, out.SyncEvent, "it was not waited for")
	cdevice.ReleaseStruct(&out)
	assert.Equal(t, event.waits, event.closes)
}

func TestSynchronizeWaitsAndLeavesNoEvent(t *testing.T) {
	checkLeaks(t)
	event := &testEvent{}
	testEvents[14] = event
	a, _ := onDevice(t, extDev, 14)
	defer a.Release()
	var out cdevice.CArrowDeviceArray
	before, err := a.Slice(0, 1)
	require.NoError(t, err)
	defer before.Release()
	for range 2 {
		require.NoError(t, a.Synchronize(context.Background()))
	}
	assert.Equal(t, 1, event.waits, "once")
	require.NoError(t, cdevice.ExportArray(a, &out, nil))
	defer cdevice.ReleaseStruct(&out)
	part, err := a.Slice(0, 1)
	require.NoError(t, err)
	defer part.Release()
	for of, want := range map[*cdevice.Array]bool{a: true, part: true, before: false} {
		var other cdevice.CArrowDeviceArray
		require.NoError(t, cdevice.ExportArray(of, &other, nil))
		assert.Equal(t, want, other.SyncEvent == 0, "what was made of it before has its event")
		cdevice.ReleaseStruct(&other)
	}
	assert.Zero(t, out.SyncEvent)
	assert.EqualValues(t, device.ExtDev, out.DeviceType, "the device stays")
}

func TestAsCPUWaitsAndLabelsCPU(t *testing.T) {
	checkLeaks(t)
	event := &testEvent{}
	testEvents[15] = event
	ctx := context.Background()
	a, _ := onDevice(t, extDev, 15)
	defer a.Release()
	b, _ := onDevice(t, pinned, 0) // host memory by its type alone, and no event
	defer b.Release()
	for _, a := range []*cdevice.Array{a, b} {
		var out cdevice.CArrowDeviceArray
		require.NoError(t, exportMade(&out, nil)(a.AsCPU(ctx)))
		assert.EqualValues(t, device.CPU, out.DeviceType)
		assert.EqualValues(t, -1, out.DeviceID)
		assert.Zero(t, out.SyncEvent)
		back, err := validated(cdevice.ImportArrayWithType(&out, arrow.PrimitiveTypes.Int32))
		require.NoError(t, err)
		back.Release()
	}
	assert.Equal(t, 1, event.waits, "only where there is an event")
}

func TestWaitWithoutABackendIsNotSupported(t *testing.T) {
	checkLeaks(t)
	a, _ := onDevice(t, pinned, 16)
	defer a.Release()
	_, err := a.HostView(context.Background())
	assert.ErrorIs(t, err, device.ErrNotSupported, "readable, but nobody can wait for the event")
}

func TestDeviceMemoryIsNotRead(t *testing.T) {
	checkLeaks(t)
	a, _ := onDevice(t, cuda, 0)
	defer a.Release()
	ctx := context.Background()
	_, err := a.HostView(ctx)
	assert.ErrorIs(t, err, device.ErrNotSupported)
	_, err = a.CopyToHost(ctx, nil)
	assert.ErrorIs(t, err, device.ErrNotSupported)
	_, err = a.Device()
	assert.ErrorIs(t, err, device.ErrNotSupported)
	_, err = a.AsCPU(ctx)
	assert.ErrorIs(t, err, device.ErrNotSupported)
	assert.ErrorContains(t, err, "cdevice: read: Array.DeviceID = cuda:3, want memory that the CPU can access: the CPU cannot access memory of cuda:3: CopyToHost copies it, or CopyTo with device.CPUDevice(): not supported")
	part, err := a.Slice(1, 2)
	require.NoError(t, err, "but sliced and exported it can be")
	defer part.Release()
	var out cdevice.CArrowDeviceArray
	require.NoError(t, cdevice.ExportArray(part, &out, nil))
	_, err = validated(cdevice.ImportArrayWithType(&out, arrow.PrimitiveTypes.Int32))
	assert.ErrorIs(t, err, device.ErrNotSupported, "contents cannot be checked without a driver")
}

func TestWrapNeedsHostMemory(t *testing.T) {
	_, err := cdevice.WrapArray(fromJSON(t, arrow.PrimitiveTypes.Int32, `[1]`), gpuOnly{device.CPUDevice()})
	assert.ErrorIs(t, err, device.ErrNotSupported)
}

// Arrow C++ exports a batch without buffers, which may come from any device, as the CPU's,
// with the event of where it comes from. There is nothing to wait for.
func TestEventOfABatchWithoutBuffersIsIgnored(t *testing.T) {
	const event = 0x9001 // never read: no memory is mapped there
	type row struct {
		name string
		base string
		set  corruption
		want string
	}
	for _, r := range []row{
		{"null", "null", func(*foreignArray, *foreignNode) {}, ""},
		{"empty", "utf8/empty", func(*foreignArray, *foreignNode) {}, ""},
		{"empty, with children", "struct_nested/empty", func(*foreignArray, *foreignNode) {}, ""},
		{"int64", "int64", func(*foreignArray, *foreignNode) {}, "sync_event = 0x9001, want NULL for cpu"},
		{"below a null struct", "list", func(*foreignArray, *foreignNode) {}, "sync_event = 0x9001, want NULL for cpu"},
		{"a dictionary below an empty one", "dictionary_int8", both(length(0), nulls(-1)), "sync_event = 0x9001, want NULL for cpu"},
	} {
		for _, w := range []way{asArray, asBatch} {
			t.Run(r.name+"/"+string(w), func(t *testing.T) {
				checkLeaks(t)
				f := foreignCase(t, r.base, w)
				defer f.free()
				if w == asBatch && r.name == "a dictionary below an empty one" {
					f.root.Length = 0
				}
				r.set(f, f.base)
				f.device.SyncEvent = event
				testEventOf(t, f, r.want)
			})
		}
	}
	t.Run("a bitmap", func(t *testing.T) {
		checkLeaks(t)
		f := newForeign(t, fromJSON(t, arrow.StructOf(arrow.Field{Name: "n", Type: arrow.Null}), `[{"n":null}, null]`), asArray)
		defer f.free()
		f.device.Array.NullCount, f.goodDevice.Array.NullCount = 0, 0 // only the bitmap has the null
		f.base.setNull(0)
		f.device.SyncEvent = event
		testEventOf(t, f, "")
		f.restore()
		f.device.SyncEvent = event
		testEventOf(t, f, "sync_event = 0x9001, want NULL for cpu")
	})
}

func testEventOf(t *testing.T, f *foreignArray, want string) {
	t.Helper()
	got, err := f.importKnown()
	if want != "" {
		assert.Nil(t, got)
		assert.ErrorContains(t, err, "ArrowDeviceArray."+want)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
		assertReleased(t, f, 1)
		return
	}
	require.NoError(t, err)
	view, copied := readAll(t, got)
	assert.NoError(t, view)
	assert.NoError(t, copied)
	out := garbageArray()
	exportOnly(t, got, out)
	assert.EqualValues(t, device.CPU, out.DeviceType)
	assert.Zero(t, out.SyncEvent, "it goes on without")
	cdevice.ReleaseStruct(out)
	got.Release()
	assertReleased(t, f, 1)
	f.device.Array = f.goodDevice.Array
	f.device.SyncEvent = 0x9001
	got, err = validated(f.importKnown())
	require.NoError(t, err)
	got.Release()
}

// The producer's event ends with its memory: while a call uses it, another goroutine's
// Release does not end both.
func TestMemoryIsHeldWhileItsEventIsUsed(t *testing.T) {
	t.Run("batch", func(t *testing.T) {
		holdsItsMemory(t, func(opts ...cdevice.ImportOption) *cdevice.RecordBatch { return batchOnDevice(t, extDev, 1, opts...) })
	})
	t.Run("array", func(t *testing.T) {
		holdsItsMemory(t, func(opts ...cdevice.ImportOption) *cdevice.Array {
			a, event := onDevice(t, extDev, 1, opts...)
			t.Cleanup(func() { runtime.KeepAlive(event) })
			return a
		})
	})
}

// usesEvents are the methods of a batch or an array that use its event.
type usesEvents[View, CPU interface{ Release() }] interface {
	Ready() (bool, error)
	Synchronize(context.Context) error
	WaitOn(device.Stream) error
	HostView(context.Context) (View, error)
	AsCPU(context.Context) (CPU, error)
	Release()
}

func holdsItsMemory[B usesEvents[V, C], V, C interface{ Release() }](t *testing.T, open func(...cdevice.ImportOption) B) {
	t.Helper()
	for name, call := range map[string]func(slowDevice, B) error{
		"Ready":       func(_ slowDevice, b B) error { return second(b.Ready()) },
		"Synchronize": func(_ slowDevice, b B) error { return b.Synchronize(background) },
		"WaitOn":      func(d slowDevice, b B) error { return b.WaitOn(slowStream{d: d}) },
		"HostView":    func(_ slowDevice, b B) error { return ended(b.HostView(background)) },
		"AsCPU":       func(_ slowDevice, b B) error { return ended(b.AsCPU(background)) },
		"ArrayView": func(_ slowDevice, b B) error {
			if b, ok := any(b).(*cdevice.RecordBatch); ok {
				return second(b.ColumnView(background, 0))
			}
			return second(any(b).(*cdevice.Array).View(background))
		},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			d := slowDevice{device.CPUDevice(), make(chan struct{}), make(chan struct{})}
			ended := make(chan struct{})
			b := open(cdevice.WithDevice(d), cdevice.WithReleaser(func(release func()) { release(); close(ended) }))
			done := make(chan error)
			go func() { done <- call(d, b) }()
			<-d.begun
			b.Release()
			select {
			case <-ended:
				t.Error("released while its event is used")
			default:
			}
			close(d.goOn)
			assert.NoError(t, <-done)
			<-ended
			assert.ErrorIs(t, call(d, b), cdevice.ErrReleased)
		})
	}
}
