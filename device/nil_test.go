package device_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/nilargs"
)

// nilEvent is an event of another implementation.
type nilEvent struct{ device.Event }

// The CPU stands for the interfaces; each other implementation has a test of its own.
func TestNilArguments(t *testing.T) {
	var ctx context.Context
	background := context.Background()
	h := device.CPUDevice()
	s, err := h.NewStream()
	require.NoError(t, err)
	e, err := h.NewEvent()
	require.NoError(t, err)
	allocated := func() device.Memory {
		m, err := h.Allocate(background, 8, nil)
		require.NoError(t, err)
		return m
	}
	const noContext, noFunction = "ctx = nil, want a context", "f = nil, want a function"
	rows := map[string]nilargs.Row{
		"Device.AfterWork(f)":                        {Call: func() error { h.AfterWork(nil); return nil }, Want: noFunction, Panics: true},
		"Device.Allocate(ctx)":                       {Call: func() error { _, err := h.Allocate(ctx, 8, nil); return err }, Want: noContext},
		"Device.Allocate(s)":                         {Call: func() error { _, err := h.Allocate(background, 8, nil); return err }},
		"Stager.AllocateHost(ctx)":                   {Call: func() error { _, err := h.(device.Stager).AllocateHost(ctx, 8); return err }, Want: noContext},
		"Device.Copy(s)":                             {Call: func() error { return h.Copy(nil, nil) }},
		"Memsetter.Memset(s)":                        {Call: func() error { return h.(device.Memsetter).Memset(0, 0, 0, nil) }},
		"Stager.Upload(ctx)":                         {Call: func() error { _, err := h.(device.Stager).Upload(ctx, nil, nil); return err }, Want: noContext},
		"Stager.Upload(s)":                           {Call: func() error { _, err := h.(device.Stager).Upload(background, nil, nil); return err }},
		"Event.OnComplete(f)":                        {Call: func() error { e.OnComplete(nil); return nil }, Want: noFunction, Panics: true},
		"Event.Synchronize(ctx)":                     {Call: func() error { return e.Synchronize(ctx) }, Want: noContext},
		"Memory.Free(s)":                             {Call: func() error { return allocated().Free(nil) }},
		"Memory.FreeAfter(e)":                        {Call: func() error { return allocated().FreeAfter(nil) }},
		"Stream.Record(e)":                           {Call: func() error { return s.Record(nil) }, Want: "event = nil"},
		"Stream.Synchronize(ctx)":                    {Call: func() error { return s.Synchronize(ctx) }, Want: noContext},
		"Stream.WaitEvent(e)":                        {Call: func() error { return s.WaitEvent((*nilEvent)(nil)) }, Want: "event = nil"},
		"Waiter.AfterWork(f)":                        {Call: func() error { s.(device.Waiter).AfterWork(nil); return nil }, Want: noFunction, Panics: true},
		"RegisterUUIDs(list)":                        {Call: func() error { device.RegisterUUIDs(device.WebGPU, nil); return nil }, Want: "RegisterUUIDs called with nil for webgpu", Panics: true},
		"Sharer.OpenMemory(ctx)":                     {In: "memory/cudaalloc"},
		"Sharer.OpenMemory(closed)":                  {In: "memory/cudaalloc"},
		"HostRegistrar.RegisterMemory(unregistered)": {In: "memory/cudaalloc"},
		"Register(open)":                             {Call: func() error { device.Register(device.WebGPU, nil); return nil }, Want: "Register called with nil for webgpu", Panics: true},
		"AddProber(p)":                               {Call: func() error { device.AddProber(nil); return nil }, Want: "AddProber called with nil", Panics: true},
	}
	nilargs.Check(t, "github.com/arrowdevice/arrowdevice/device", nil, rows)
}
