package hostpinned_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/pages"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// mapFile maps a file of the content read-only, as ipc.MappedFileReader does.
func mapFile(t *testing.T, content []byte) []byte {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, content, 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	mapped, unmap, err := pages.MapFile(f, len(content))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, unmap()) })
	return mapped
}

// An IPC file that is mapped and registered is copied from without staging.
func TestMappedIPCFile(t *testing.T) {
	g := cudatest.SimulatedGPU(t, cudasim.Options{PageableAsync: true})
	want := records(t)
	var file bytes.Buffer
	w, err := ipc.NewFileWriter(&file, ipc.WithSchema(want.Schema()))
	require.NoError(t, err)
	require.NoError(t, w.Write(want))
	require.NoError(t, w.Close())
	mapped := mapFile(t, file.Bytes())

	registered, err := hostpinned.Register(g.Device, mapped, hostpinned.WithReadOnly())
	require.NoError(t, err)
	assert.EqualValues(t, len(mapped), registered.Size())
	r, err := ipc.NewFileReader(bytes.NewReader(mapped))
	require.NoError(t, err)
	got, err := r.RecordBatchAt(0)
	require.NoError(t, err)
	assert.True(t, array.RecordEqual(want, got))
	got.Release()
	require.NoError(t, r.Close())

	own := g.Ready(registered.Size())
	g.M.Sim.ResetCounters()
	g.Transfer(own.Ptr(), registered.Ptr(), registered.Size(), nil)
	require.NoError(t, g.Legacy().Synchronize(background))
	report := g.M.Sim.Report()
	assert.EqualValues(t, len(mapped), report.Bytes.HtoD)
	assert.Zero(t, report.StagedBytes)
	require.NoError(t, registered.Unregister(background))
	assert.EqualError(t, registered.Unregister(background), "hostpinned: unregistered twice")
	assert.Zero(t, g.M.Sim.Report().Live.RegisteredBytes)
}

// Memory that is not registered any more may be written to: no copy reads it. Unregister may be called again
// after its context has ended.
func TestGPURegister(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		g := m.On(t, m.GPUs[0])
		b := bytes.Repeat([]byte{1}, 64<<10) // of the Go heap
		r, err := hostpinned.Register(g.Device, b)
		require.NoError(t, err)
		at, err := g.Lookup(r.Ptr())
		require.NoError(t, err)
		assert.Equal(t, device.CUDAHost, at.ID.Type)
		_, err = hostpinned.Register(g.Device, b)
		assert.ErrorIs(t, err, cudaalloc.HostMemoryAlreadyRegistered)
		_, err = hostpinned.Register(g.Device, nil)
		assert.ErrorContains(t, err, "b is empty")

		s, own := g.Stream(), g.Ready(r.Size())
		m.HostWrite(r.Ptr(), r.Size())
		open := m.Hold(t, s)
		g.Transfer(own.Ptr(), r.Ptr(), r.Size(), s)
		ended, cancel := context.WithCancel(background)
		cancel()
		assert.ErrorIs(t, r.Unregister(ended), context.Canceled)
		open()
		require.NoError(t, r.Unregister(background), "waits for the copy")
		cudatest.Fill(b, 2)
		g.Holds(1, own.Ptr(), len(b), s)
	})
}

// A driver that fails once loses nothing: the registration can be ended again.
func TestUnregisterFails(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	r, err := hostpinned.Register(m.GPUs[0], make([]byte, 8<<10))
	require.NoError(t, err)
	m.Sim.Fail("cuMemHostUnregister", 1, 999)
	assert.ErrorContains(t, r.Unregister(background), "cuMemHostUnregister")
	m.Sim.Fail("cuCtxSynchronize", 1, 999)
	require.NoError(t, r.Unregister(background), "it is synchronised again")
	m.Sim.Fail("cuMemHostRegister", 1, 999)
	_, err = hostpinned.Register(m.GPUs[0], make([]byte, 100))
	assert.ErrorContains(t, err, "cuMemHostRegister")
	assert.Zero(t, m.Sim.Report().Live.RegisteredBytes)
}
