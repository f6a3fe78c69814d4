package cdevice_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// What a plain export waits for, and what ends the wait.

func TestPlainExportWaitsForTheEvent(t *testing.T) {
	checkLeaks(t)
	event := &testEvent{}
	testEvents[31] = event
	a, _ := onDevice(t, extDev, 31)
	defer a.Release()
	for name, opts := range map[string][]cdevice.ExportOption{
		"no option":    nil,
		"Synchronized": {cdevice.Synchronized(background)},
		"ForHost":      {cdevice.ForHost(background)},
	} {
		*event = testEvent{}
		out, schema := garbagePlain(), garbageSchema()
		require.NoError(t, cdevice.ExportPlainArray(background, a, out, schema, opts...))
		assert.Equal(t, testEvent{waits: 1, closes: 1}, *event, name)
		back, err := cdevice.ImportPlainArray(out, schema)
		require.NoError(t, err)
		sameOnHost(t, fromJSON(t, arrow.PrimitiveTypes.Int32, `[1,2]`), back)
		assert.Equal(t, 1, event.waits, "the plain struct has no event")
		back.Release()

		event.err = errors.New("launch failure")
		out, schema = garbagePlain(), garbageSchema()
		assert.ErrorIs(t, cdevice.ExportPlainArray(background, a, out, schema, opts...), event.err, name)
		assert.Equal(t, *plainArray(garbagePlain()), *plainArray(out), "written only on success")
		assert.Equal(t, *garbageSchema(), *schema)
	}
}

func TestPlainRecordBatchWaitsForTheEvent(t *testing.T) {
	checkLeaks(t)
	event := &testEvent{}
	testEvents[32] = event
	b := batchOnDevice(t, extDev, 32)
	defer b.Release()
	out := garbagePlain()
	require.NoError(t, cdevice.ExportPlainRecordBatch(background, b, out, nil))
	assert.Equal(t, 1, event.waits)
	cdevice.ReleaseCArrowArray(out)
}

// batchOnDevice imports a batch [1, 2] that claims to live on a device; see onDevice.
func batchOnDevice(t *testing.T, id device.ID, handle uintptr) *cdevice.RecordBatch {
	t.Helper()
	rec := oneColumn(t, fromJSON(t, arrow.PrimitiveTypes.Int32, `[1,2]`))
	b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	out := garbageArray()
	require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
	b.Release()
	cell := &handle
	out.DeviceType, out.DeviceID, out.SyncEvent = int32(id.Type), id.Ordinal, addressOf(cell)
	t.Cleanup(func() { _ = *cell })
	if handle == 0 {
		out.SyncEvent = 0
	}
	back, err := cdevice.ImportRecordBatchWithSchema(out, rec.Schema())
	require.NoError(t, err)
	return back
}

// countedStream is a stream of the CPU whose work is done when it is waited for.
type countedStream struct {
	device.Stream
	waits int
	err   error
}

func (s *countedStream) Synchronize(context.Context) error { s.waits++; return s.err }

func TestPlainReadyAfterWaitsForTheStream(t *testing.T) {
	checkLeaks(t)
	host, err := device.CPUDevice().NewStream()
	require.NoError(t, err)
	s := &countedStream{Stream: host}
	b := wrap(t, oneColumn(t, fromJSON(t, arrow.PrimitiveTypes.Int32, `[1,2]`)))
	out := garbagePlain()
	require.NoError(t, cdevice.ExportPlainRecordBatch(background, b, out, nil, cdevice.ReadyAfter(s)))
	assert.Equal(t, 1, s.waits)
	cdevice.ReleaseCArrowArray(out)

	s.err = errors.New("launch failure")
	out = garbagePlain()
	assert.ErrorIs(t, cdevice.ExportPlainRecordBatch(background, b, out, nil, cdevice.ReadyAfter(s)), s.err)
	assert.Equal(t, *plainArray(garbagePlain()), *plainArray(out))
	for _, wrong := range []device.Stream{nil, (*countedStream)(nil)} {
		err := cdevice.ExportPlainRecordBatch(background, b, out, nil, cdevice.ReadyAfter(wrong))
		assert.EqualError(t, err, "cdevice: export: ReadyAfter = nil, want a stream: invalid")
	}
	a, _ := onDevice(t, pinned, 0)
	defer a.Release()
	err = cdevice.ExportPlainArray(background, a, out, nil, cdevice.ReadyAfter(s))
	assert.ErrorContains(t, err, "ReadyAfter = a stream of cpu, want a stream of cuda_host")
}

func TestPlainForCuDFIsRefused(t *testing.T) {
	b := wrap(t, oneColumn(t, fromJSON(t, arrow.PrimitiveTypes.Int32, `[1]`)))
	r, err := cdevice.NewRecordReader(b.Schema(), device.CPU, yielding(nil, b))
	require.NoError(t, err)
	defer r.Release()
	out, stream := garbagePlain(), garbagePlainStream()
	for _, err := range []error{
		cdevice.ExportPlainRecordBatch(background, b, out, nil, cdevice.ForCuDF(background)),
		cdevice.ExportPlainRecordReader(background, r, stream, cdevice.ForCuDF(background)),
	} {
		assert.EqualError(t, err, "cdevice: export: ForCuDF = an option of a plain export, want a device export: libcudf takes ArrowDeviceArray: invalid")
		assert.ErrorIs(t, err, arrow.ErrInvalid)
	}
	assert.Equal(t, *plainArray(garbagePlain()), *plainArray(out))
	assert.Equal(t, *plainStream(garbagePlainStream()), *plainStream(stream))
}

func TestPlainExportRefusesDeviceMemory(t *testing.T) {
	checkLeaks(t)
	out := garbagePlain()
	for _, opts := range [][]cdevice.ExportOption{nil, {cdevice.Synchronized(background)}, {cdevice.ForHost(background)}} {
		a, _ := onDevice(t, cuda, 0)
		err := cdevice.ExportPlainArray(background, a, out, nil, opts...)
		assert.ErrorIs(t, err, device.ErrNotSupported)
		assert.ErrorContains(t, err, "cdevice: export: Array.DeviceID = cuda:3, want memory that the host can read: the host cannot read memory of cuda:3")
		a.Release()
		b := batchOnDevice(t, device.ID{Type: 99, Ordinal: 1}, 0)
		err = cdevice.ExportPlainRecordBatch(background, b, out, nil, opts...)
		assert.ErrorIs(t, err, device.ErrNotSupported)
		assert.ErrorContains(t, err, "cdevice: export: RecordBatch.DeviceID = ")
		b.Release()
	}
	assert.Equal(t, *plainArray(garbagePlain()), *plainArray(out))
}

// Page-locked memory is the host's to read, by the meaning of its type.
func TestPlainExportOfPinnedMemory(t *testing.T) {
	checkLeaks(t)
	a, _ := onDevice(t, pinned, 0)
	defer a.Release()
	back := throughPlain(t, a)
	defer back.Release()
	assert.Equal(t, device.CPUDevice().ID(), back.DeviceID())
	noBackend, _ := onDevice(t, pinned, 33)
	defer noBackend.Release()
	assert.ErrorIs(t, cdevice.ExportPlainArray(background, noBackend, garbagePlain(), nil), device.ErrNotSupported,
		"readable, but no backend can wait for the event")
}

// stuckEvent never completes.
type stuckEvent struct{ *testEvent }

func (e stuckEvent) Synchronize(ctx context.Context) error {
	e.waits++
	<-ctx.Done()
	return ctx.Err()
}

// stuckDevice has one: it is registered for OneAPI, whose events are no handles.
type stuckDevice struct{ device.Device }

func (stuckDevice) ID() device.ID                           { return stuck }
func (stuckDevice) CPUAccessible() bool                     { return true }
func (stuckDevice) WrapEvent(uintptr) (device.Event, error) { return stuckEvent{new(testEvent)}, nil }

var stuck = device.ID{Type: device.OneAPI, Ordinal: 77} // other tests know of no such device
func init() {
	device.Register(device.OneAPI, func(ordinal int64) (device.Device, error) {
		if ordinal != stuck.Ordinal {
			return nil, device.ErrNotSupported
		}
		return stuckDevice{device.CPUDevice()}, nil
	})
}

// ends runs an export that waits for ever, and checks that it ends soon after its context.
func ends(t *testing.T, what string, want error, export func() error) {
	t.Helper()
	start, done := time.Now(), make(chan error, 1)
	go func() { done <- export() }()
	select {
	case err := <-done:
		assert.ErrorIs(t, err, want, what)
		assert.Less(t, time.Since(start), 2*time.Second, what)
	case <-time.After(20 * time.Second):
		t.Fatal("never: ", what)
	}
}

func TestContextsEndAPlainExport(t *testing.T) {
	checkLeaks(t)
	a, _ := onDevice(t, stuck, 1)
	defer a.Release()
	out := garbagePlain()
	export := func(ctx context.Context, opts ...cdevice.ExportOption) func() error {
		return func() error { return cdevice.ExportPlainArray(ctx, a, out, nil, opts...) }
	}
	brief := func() context.Context {
		ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	late := func() context.Context {
		ctx, cancel := context.WithCancel(background)
		time.AfterFunc(20*time.Millisecond, cancel)
		return ctx
	}
	ended, cancel := context.WithCancel(background)
	cancel()
	ends(t, "the argument", context.DeadlineExceeded, export(brief()))
	ends(t, "the argument, canceled", context.Canceled, export(late()))
	ends(t, "an option's", context.DeadlineExceeded, export(background, cdevice.Synchronized(brief())))
	ends(t, "an option's, canceled", context.Canceled, export(background, cdevice.ForHost(late())))
	ends(t, "the argument beside an option", context.DeadlineExceeded, export(brief(), cdevice.Synchronized(background)))
	ends(t, "ended before", context.Canceled, export(ended))
	assert.Equal(t, *plainArray(garbagePlain()), *plainArray(out), "written only on success")

	ready := wrap(t, oneColumn(t, fromJSON(t, arrow.PrimitiveTypes.Int32, `[1]`)))
	for _, export := range []func(*cdata.CArrowArray) error{
		func(out *cdata.CArrowArray) error { return cdevice.ExportPlainRecordBatch(ended, ready, out, nil) },
		func(out *cdata.CArrowArray) error {
			return cdevice.ExportPlainRecordBatch(background, ready, out, nil, cdevice.ForHost(ended))
		},
	} {
		assert.EqualError(t, export(out), "cdevice: export: context canceled", "also where there is nothing to wait for")
	}
}
