package cdevice_test

import (
	"context"
	"runtime"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// The producer's event ends with its memory: while a call uses it, another goroutine's
// Release does not end both.
func TestMemoryIsHeldWhileItsEventIsUsed(t *testing.T) {
	checkLeaks(t)
	type readable interface {
		Ready() (bool, error)
		Synchronize(context.Context) error
		WaitOn(device.Stream) error
		Release()
	}
	calls := map[string]func(slowDevice, readable) error{
		"Ready":       func(_ slowDevice, b readable) error { _, err := b.Ready(); return err },
		"Synchronize": func(_ slowDevice, b readable) error { return b.Synchronize(background) },
		"WaitOn":      func(d slowDevice, b readable) error { return b.WaitOn(slowStream{d: d}) },
		"HostView": func(_ slowDevice, b readable) error {
			if a, ok := b.(*cdevice.Array); ok {
				view, err := a.HostView(background)
				if err == nil {
					view.Release()
				}
				return err
			}
			view, err := b.(*cdevice.RecordBatch).HostView(background)
			if err == nil {
				view.Release()
			}
			return err
		},
		"AsCPU": func(_ slowDevice, b readable) error {
			var cpu interface{ Release() }
			var err error
			if a, ok := b.(*cdevice.Array); ok {
				cpu, err = a.AsCPU(background)
			} else {
				cpu, err = b.(*cdevice.RecordBatch).AsCPU(background)
			}
			if err == nil {
				cpu.Release()
			}
			return err
		},
	}
	for name, call := range calls {
		for _, what := range []string{"batch", "array"} {
			t.Run(name+"/"+what, func(t *testing.T) {
				d := slowDevice{device.CPUDevice(), make(chan struct{}), make(chan struct{})}
				released := make(chan struct{})
				b := pendingImport(t, d, what, func(release func()) { release(); close(released) })
				done := make(chan error)
				go func() { done <- call(d, b) }()
				<-d.begun
				b.Release()
				select {
				case <-released:
					t.Error("released while its event is used")
				default:
				}
				close(d.goOn)
				assert.NoError(t, <-done)
				<-released
				assert.ErrorIs(t, call(d, b), cdevice.ErrReleased)
			})
		}
	}
}

// pendingImport is a batch or an array on d with an event.
func pendingImport(t *testing.T, d device.Device, what string, releaseWith func(func())) interface {
	Ready() (bool, error)
	Synchronize(context.Context) error
	WaitOn(device.Stream) error
	Release()
} {
	t.Helper()
	host, err := cdevice.WrapArray(fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,2,3]`), device.CPUDevice())
	require.NoError(t, err)
	out := garbageArray()
	event := new(uintptr) // where sync_event points
	t.Cleanup(func() { runtime.KeepAlive(event) })
	opts := []cdevice.ImportOption{cdevice.WithDevice(d), cdevice.WithReleaser(releaseWith)}
	if what == "array" {
		require.NoError(t, cdevice.ExportArray(host, out, nil))
		host.Release()
		out.DeviceType, out.DeviceID, out.SyncEvent = int32(d.ID().Type), d.ID().Ordinal, uintptr(unsafe.Pointer(event))
		a, err := cdevice.ImportArrayWithType(out, arrow.PrimitiveTypes.Int64, opts...)
		require.NoError(t, err)
		return a
	}
	host.Release()
	empty := ownedBatch(t, nil)
	require.NoError(t, cdevice.ExportRecordBatch(empty, out, nil))
	empty.Release()
	out.DeviceType, out.DeviceID, out.SyncEvent = int32(d.ID().Type), d.ID().Ordinal, uintptr(unsafe.Pointer(event))
	b, err := cdevice.ImportRecordBatchWithSchema(out, arrow.NewSchema(nil, nil), opts...)
	require.NoError(t, err)
	return b
}
