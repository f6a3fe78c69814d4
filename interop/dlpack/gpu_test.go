package dlpack_test

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// recorded returns an event behind the work of a stream.
func recorded(t *testing.T, s device.Stream) device.Event {
	t.Helper()
	e, err := s.Device().NewEvent()
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, e.Close()) })
	require.NoError(t, s.Record(e))
	return e
}

func complete(t *testing.T, e device.Event) bool {
	t.Helper()
	done, err := e.Query()
	require.NoError(t, err)
	return done
}

const matrix = "[[1,2],[3,4],[5,6]]"

// onGPU copies an array to a GPU, on a stream that is held if there is one.
func onGPU(t *testing.T, gpu *cudaalloc.Device, s device.Stream) *cdevice.Array {
	t.Helper()
	var opts []cdevice.CopyOption
	if s != nil {
		opts = append(opts, cdevice.WithStream(s))
	}
	a, err := fromJSON(t, listOf(arrow.PrimitiveTypes.Float32, 2), matrix).CopyTo(background, gpu, opts...)
	require.NoError(t, err)
	return a
}

func onHost(t *testing.T, a *cdevice.Array) string {
	t.Helper()
	host, err := a.CopyToHost(background, nil)
	require.NoError(t, err)
	defer host.Release()
	return host.String()
}

// A pending array is refused, except with the consumer's stream, which then waits for it.
func TestGPUExportIsOrdered(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		for _, f := range forms {
			for name, opt := range map[string]func(device.Stream) dlpack.ExportOption{
				"WithStream":       func(s device.Stream) dlpack.ExportOption { return dlpack.WithStream(s) },
				"WithStreamNumber": func(s device.Stream) dlpack.ExportOption { return dlpack.WithStreamNumber(int64(s.Handle())) },
			} {
				t.Run(f.name+" "+name, func(t *testing.T) {
					producer, consumer := cudatest.NewStream(t, gpu), cudatest.NewStream(t, gpu)
					open := m.Hold(t, producer)
					a := onGPU(t, gpu, producer)
					_, err := f.export(a)
					assert.ErrorIs(t, err, arrow.ErrInvalid)
					assert.ErrorContains(t, err, "an array with a pending event, want one that is ready: call Synchronize, or pass the consumer's stream (WithStream)")

					out, err := f.export(a, opt(consumer))
					require.NoError(t, err, "it does not wait")
					work := recorded(t, consumer)
					assert.False(t, complete(t, work), "the stream waits for the event")
					assert.Equal(t, dlpack.Device{Type: 2}, out.Device)
					a.Release()
					out.deleted()
					assert.Positive(t, gpu.ReadStats().Device.Live, "pending work may use the memory")
					open()
					require.NoError(t, work.Synchronize(background))
				})
			}
		}
	})
}

func TestGPUPendingExport(t *testing.T) {
	m := cudatest.One(t, cudatest.Schedules()["delayed"])
	producer := cudatest.NewStream(t, m.GPUs[0])
	open := m.Hold(t, producer)
	a := onGPU(t, m.GPUs[0], producer)
	defer a.Release()
	for _, opt := range []dlpack.ExportOption{dlpack.WithPending(), dlpack.WithStreamNumber(-1)} {
		out, err := dlpack.Export(a, opt)
		require.NoError(t, err)
		out.Delete()
	}
	open()
	require.NoError(t, a.Synchronize(background))
	out, err := dlpack.Export(a)
	require.NoError(t, err)
	out.Delete()
}

// A round trip over a GPU: the import is ordered after the stream that the producer was given.
func TestGPURoundTrip(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		for _, f := range forms {
			t.Run(f.name, func(t *testing.T) {
				producer, between := cudatest.NewStream(t, gpu), cudatest.NewStream(t, gpu)
				open := m.Hold(t, producer)
				a := onGPU(t, gpu, producer)
				out, err := f.export(a, dlpack.WithStream(between))
				require.NoError(t, err)
				a.Release()
				back, err := f.take(out.address, dlpack.WithStream(between), dlpack.WithImportOptions(cdevice.WithDevice(gpu)))
				require.NoError(t, err)
				ready, err := back.Ready()
				require.NoError(t, err)
				assert.False(t, ready, "it has an event on the stream")
				slice, err := back.Slice(1, 3)
				require.NoError(t, err)
				back.Release()
				open()
				assert.Equal(t, "[[3 4] [5 6]]", onHost(t, slice))
				slice.Release()
			})
		}
	})
}

// imported imports a tensor of memory of a GPU. done is closed once its deleter was called.
func imported(t *testing.T, gpu *cudaalloc.Device, f form, opts ...dlpack.ImportOption) (a *cdevice.Array, peer cpeer.Tensor, done chan struct{}) {
	t.Helper()
	memory, err := gpu.Allocate(background, 64, nil)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, memory.Free(nil)) })
	peer, done = peerOf(t, device.CUDA, uintptr(memory.Ptr()), 4), make(chan struct{})
	releaser := cdevice.WithReleaser(func(release func()) { release(); close(done) })
	a, err = f.take(f.of(peer), append(opts, dlpack.WithImportOptions(cdevice.WithDevice(gpu), releaser))...)
	require.NoError(t, err)
	return a, peer, done
}

// requireDeletedAfter fails unless the deleter is called once work that is held back is done, and not before.
func requireDeletedAfter(t *testing.T, open func(), peer cpeer.Tensor, done chan struct{}) {
	t.Helper()
	select {
	case <-done:
		assert.Fail(t, "deleted while work is pending")
	default:
	}
	open()
	<-done
	assert.Equal(t, 1, peer.Deleted())
}

// The deleter of an import with a stream is called after the work of that stream, and not before.
func TestGPUDeleterComesAfterWork(t *testing.T) {
	m := cudatest.One(t, cudatest.Schedules()["delayed"])
	eachForm(t, func(t *testing.T, f form) {
		stream := cudatest.NewStream(t, m.GPUs[0])
		open := m.Hold(t, stream)
		a, peer, done := imported(t, m.GPUs[0], f, dlpack.WithStream(stream))
		a.Release()
		requireDeletedAfter(t, open, peer, done)
	})
}

// The memory of a producer is kept for the consumer's work, on whichever stream that is.
func TestGPUExportKeepsTheMemory(t *testing.T) {
	m := cudatest.One(t, cudatest.Schedules()["delayed"])
	consumer := cudatest.NewStream(t, m.GPUs[0])
	for name, opts := range map[string][]dlpack.ExportOption{
		"WithStream":                {dlpack.WithStream(consumer)},
		"WithStream of the CPU":     {dlpack.WithStream(hostStream(t))},
		"WithPending":               {dlpack.WithPending()},
		"WithStreamNumber(-1)":      {dlpack.WithStreamNumber(-1)},
		"WithStreamNumber(legacy)":  {dlpack.WithStreamNumber(1)},
		"without an option":         nil,
		"WithoutNulls, no stream":   {dlpack.WithoutNulls()},
		"WithStreamNumber of a GPU": {dlpack.WithStreamNumber(int64(consumer.Handle()))},
	} {
		t.Run(name, func(t *testing.T) {
			eachForm(t, func(t *testing.T, f form) {
				a, peer, done := imported(t, m.GPUs[0], f)
				out, err := f.export(a, opts...)
				require.NoError(t, err)
				open := m.Hold(t, consumer)
				a.Release()
				out.deleted()
				requireDeletedAfter(t, open, peer, done)
			})
		})
	}
}

// Pinned and managed memory keep their types. Their number is 0 in a tensor of any GPU; the import is of the stream's GPU,
// and without a stream of the tensor's.
func TestGPUPinnedAndManaged(t *testing.T) {
	m := cudatest.One(t, cudatest.Schedules()["random"])
	for i, gpu := range m.GPUs {
		streams := map[string][]dlpack.Option{"a stream": {dlpack.WithStream(cudatest.NewStream(t, gpu))}}
		if i == 0 {
			streams["no stream"] = nil
		}
		for _, dev := range []device.Device{gpu.Pinned(), gpu.Managed()} {
			for name, stream := range streams {
				t.Run(dev.ID().String()+" "+name, func(t *testing.T) {
					eachForm(t, func(t *testing.T, f form) {
						a, err := fromJSON(t, listOf(arrow.PrimitiveTypes.Float32, 2), matrix).CopyTo(background, dev)
						require.NoError(t, err)
						var exportOpts []dlpack.ExportOption
						importOpts := []dlpack.ImportOption{dlpack.WithImportOptions(cdevice.WithDevice(dev))}
						if stream == nil {
							require.NoError(t, a.Synchronize(background))
						} else {
							exportOpts, importOpts = append(exportOpts, stream[0]), append(importOpts, stream[0])
						}
						out, err := f.export(a, exportOpts...)
						require.NoError(t, err)
						assert.Equal(t, dlpack.Device{Type: int32(dev.ID().Type)}, out.Device)
						a.Release()
						back, err := f.take(out.address, importOpts...)
						require.NoError(t, err)
						assert.Equal(t, dev.ID(), back.DeviceID())
						assert.Equal(t, "[[1 2] [3 4] [5 6]]", onHost(t, back))
						back.Release()
					})
				})
			}
		}
	}
}

// Nulls that only device memory knows are not read by an export: the caller counts them.
func TestGPUUnknownNulls(t *testing.T) {
	m := cudatest.One(t, cudatest.Schedules()["delayed"])
	a, err := fromJSON(t, arrow.PrimitiveTypes.Int32, "[1, null, 3, 4]").CopyTo(background, m.GPUs[0])
	require.NoError(t, err)
	defer a.Release()
	require.NoError(t, a.Synchronize(background))
	slice, err := a.Slice(2, 4)
	require.NoError(t, err)
	defer slice.Release()
	_, err = dlpack.Export(slice)
	assert.ErrorIs(t, err, arrow.ErrInvalid)
	assert.ErrorContains(t, err, "Array.NullCount = unknown, want 0: count them (CountNulls) and pass WithoutNulls")
	nulls, err := slice.CountNulls(background)
	require.NoError(t, err)
	assert.Zero(t, nulls)
	out, err := dlpack.Export(slice, dlpack.WithoutNulls())
	require.NoError(t, err)
	out.Delete()
	nothing, err := a.Slice(1, 1)
	require.NoError(t, err)
	defer nothing.Release()
	out, err = dlpack.Export(nothing)
	require.NoError(t, err, "no elements, no nulls")
	out.Delete()
}

// Of memory that the CPU can access, the nulls are counted, but not before it is ready.
func TestGPUNullsOfPendingMemory(t *testing.T) {
	m := cudatest.One(t, cudatest.Schedules()["delayed"])
	pinned := m.GPUs[0].Pinned()
	producer, consumer := cudatest.NewStream(t, m.GPUs[0]), cudatest.NewStream(t, m.GPUs[0])
	a, err := fromJSON(t, arrow.PrimitiveTypes.Int32, "[1, null, 3, 4]").CopyTo(background, pinned)
	require.NoError(t, err)
	defer a.Release()
	require.NoError(t, a.Synchronize(background))
	open := m.Hold(t, producer)
	pending, err := a.WithEvent(producer)
	require.NoError(t, err)
	defer pending.Release()
	slice, err := pending.Slice(2, 4)
	require.NoError(t, err)
	defer slice.Release()
	_, err = dlpack.Export(slice, dlpack.WithStream(consumer))
	assert.ErrorContains(t, err, "Array.NullCount = unknown")
	open()
	require.NoError(t, slice.Synchronize(background))
	out, err := dlpack.Export(slice, dlpack.WithStream(consumer))
	require.NoError(t, err)
	out.Delete()
}

// watched counts the events of arrays that are opened.
type watched struct {
	device.Device
	opened int
}

func (w *watched) WrapEvent(handle uintptr) (device.Event, error) {
	w.opened++
	return w.Device.WrapEvent(handle)
}

// A query that finds the event complete would be a wait of the program to a simulated driver, now and then.
func TestGPUPendingExportAsksForNoEvent(t *testing.T) {
	gpu := cudatest.OneGPU(t, cudatest.Schedules()["delayed"])
	dev := &watched{Device: gpu.Device}
	mem := gpu.Ready(16)
	e, err := gpu.NewEvent()
	require.NoError(t, err)
	a, err := cdevice.NewArray(dev, arrow.PrimitiveTypes.Int64, cdevice.ArrayData{Length: 2, Buffers: []device.Ptr{0, mem.Ptr()}}, cdevice.Lifetime{Ready: e})
	require.NoError(t, err)
	defer a.Release()
	for opened, opts := range [][]dlpack.ExportOption{{dlpack.WithPending()}, {}} {
		out, err := dlpack.Export(a, opts...)
		require.NoError(t, err)
		out.Delete()
		assert.Equal(t, opened, dev.opened)
	}
}
