package cudaalloc_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/nilargs"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

func TestNilArguments(t *testing.T) {
	var ctx context.Context
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	s, err := gpu.NewStream()
	require.NoError(t, err)
	defer s.Close()
	e, err := gpu.NewEvent()
	require.NoError(t, err)
	defer e.Close()
	own, err := gpu.Allocate(background, 8, nil)
	require.NoError(t, err)
	defer func() { assert.NoError(t, own.Free(nil)) }()
	managed, err := cudaalloc.NewManagedAllocator(gpu)
	require.NoError(t, err)
	none := (*cudaalloc.Stream)(nil) // the default stream, as nil is

	const noContext, noFunction = "ctx = nil, want a context", "f = nil, want a function"
	rows := map[string]nilargs.Row{
		"Device.AfterWork(f)":  {Call: func() error { gpu.AfterWork(nil); return nil }, Want: "cuda: AfterWork: " + noFunction, Panics: true},
		"Device.Allocate(ctx)": {Call: func() error { _, err := gpu.Allocate(ctx, 8, nil); return err }, Want: "cuda: allocate: " + noContext},
		"Device.Allocate(s)": {Call: func() error {
			m, err := gpu.Allocate(background, 8, none)
			if err == nil {
				err = m.Free(nil)
			}
			return err
		}},
		"Device.AllocateHost(ctx)":        {Call: func() error { _, err := gpu.AllocateHost(ctx, 8); return err }, Want: noContext},
		"Device.CanAccessPeer(peer)":      {Call: func() error { _, err := gpu.CanAccessPeer(nil); return err }, Want: "cuda: CanAccessPeer: peer = nil, want a GPU"},
		"Device.EnablePeerAccess(peer)":   {Call: func() error { return gpu.EnablePeerAccess(nil) }, Want: "peer = nil, want a GPU"},
		"Device.Copy(s)":                  {Call: func() error { return gpu.Copy(nil, none) }},
		"Device.CopyContext(ctx)":         {Call: func() error { return gpu.CopyContext(ctx, nil, nil) }, Want: "cuda: copy: " + noContext},
		"Device.CopyContext(s)":           {Call: func() error { return gpu.CopyContext(background, nil, none) }},
		"Device.Flush(ctx)":               {Call: func() error { return gpu.Flush(ctx) }, Want: noContext},
		"Device.Trim(ctx)":                {Call: func() error { return gpu.Trim(ctx) }, Want: noContext},
		"Device.HoldSynchronization(ctx)": {Call: func() error { _, err := gpu.HoldSynchronization(ctx); return err }, Want: noContext},
		"Device.Memset(s)":                {Call: func() error { return gpu.Memset(own.Ptr(), 0, 8, nil) }},
		"Device.OpenMemory(ctx)":          {Call: func() error { _, err := gpu.OpenMemory(ctx, device.IPCHandle{}, 8, nil); return err }, Want: noContext},
		"Device.OpenMemory(closed)": {Call: func() error {
			_, err := gpu.OpenMemory(background, device.IPCHandle{}, 8, nil)
			require.ErrorContains(t, err, "cuIpcOpenMemHandle")
			return nil
		}},
		"Device.Prefetch(s)":       {Call: func() error { return gpu.Prefetch(own.Ptr(), 0, nil) }},
		"Device.PrefetchToHost(s)": {Call: func() error { return gpu.PrefetchToHost(own.Ptr(), 0, nil) }},
		"Device.RegisterMemory(unregistered)": {Call: func() error {
			page := make([]byte, 4096)
			mem, err := gpu.RegisterMemory(cudatest.Pointer(page), 4096, false, nil)
			if err != nil {
				return err
			}
			err = errors.Join(mem.FreeAfter(nil), gpu.Flush(background))
			runtime.KeepAlive(page)
			return err
		}},
		"Device.Upload(ctx)": {Call: func() error { _, err := gpu.Upload(ctx, nil, nil); return err }, Want: noContext},
		"Device.Upload(s)": {Call: func() error {
			done, err := gpu.Upload(background, []device.Range{}, nil)
			if err == nil {
				err = done.Close()
			}
			return err
		}},
		"Event.OnComplete(f)":               {Call: func() error { e.OnComplete(nil); return nil }, Want: noFunction, Panics: true},
		"Event.Synchronize(ctx)":            {Call: func() error { return e.Synchronize(ctx) }, Want: noContext},
		"Stream.AfterWork(f)":               {Call: func() error { s.(*cudaalloc.Stream).AfterWork(nil); return nil }, Want: "cuda: AfterWork: " + noFunction, Panics: true},
		"Stream.AwaitRoom(ctx)":             {Call: func() error { return s.(*cudaalloc.Stream).AwaitRoom(ctx) }, Want: "cuda: await room: " + noContext},
		"Stream.Synchronize(ctx)":           {Call: func() error { return s.Synchronize(ctx) }, Want: noContext},
		"Stream.Record(e)":                  {Call: func() error { return s.Record(nil) }, Want: "event = nil"},
		"Stream.WaitEvent(e)":               {Call: func() error { return s.WaitEvent((*cudaalloc.Event)(nil)) }, Want: "event = nil"},
		"ManagedAllocator.TryAllocate(ctx)": {Call: func() error { _, err := managed.TryAllocate(ctx, 8); return err }, Want: noContext},
		"NewManagedAllocator(opts...)":      {Call: func() error { _, err := cudaalloc.NewManagedAllocator(gpu, nil); return err }, Want: "cuda: NewManagedAllocator: opts[0] = nil, want an option"},
		"NewManagedAllocator(gpu)":          {Call: func() error { _, err := cudaalloc.NewManagedAllocator(nil); return err }, Want: "cuda: NewManagedAllocator: gpu = nil, want a GPU"},
		"Code.Is(target)":                   {Call: func() error { assert.False(t, cudaalloc.OutOfMemory.Is(nil)); return nil }},
		"Devices(opts...)":                  {Call: func() error { _, err := cudaalloc.Devices(m.Driver(), nil); return err }, Want: "cuda: Devices: opts[1] = nil, want an option"},
		"DriverVersion(opts...)":            {Call: func() error { _, err := cudaalloc.DriverVersion(nil, m.Driver()); return err }, Want: "cuda: DriverVersion: opts[0] = nil, want an option"},
		"Open(opts...)":                     {Call: func() error { _, err := cudaalloc.Open(0, nil, m.Driver()); return err }, Want: "cuda: Open: opts[0] = nil, want an option"},
	}
	// Nil pointers of other implementations.
	assert.ErrorContains(t, gpu.Memset(own.Ptr(), 0, 8, (*theirStream)(nil)), "stream = nil")
	assert.ErrorContains(t, s.Record((*theirEvent)(nil)), "event = nil")
	nilargs.Check(t, "github.com/arrowdevice/arrowdevice/memory/cudaalloc", arrow.ErrInvalid, rows)
}
