package cdevice_test

import (
	"context"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
)

// Pairs of accesses that only a wait of this package orders. No stream is held back: the
// simulator reports a pair without its wait, in either order of the two.

// The memory of an export is freed after work of its consumer that this package never
// heard of, on a stream of the consumer's.
func TestGPUExportIsFreedBehindItsConsumer(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		rec := columnsOf(memory.DefaultAllocator, 1, 1000, false)
		defer rec.Release()
		there, err := copyArray(background, rec.Column(0), gpu)
		require.NoError(t, err)
		consumer := newStream(t, gpu)
		require.NoError(t, there.WaitOn(consumer))
		out := garbageArray()
		require.NoError(t, cdevice.ExportArray(there, out, nil))
		there.Release()
		values := *abi.At[uintptr](out.Array.Buffers + 8)
		target, err := gpu.Allocate(background, 8000, consumer)
		require.NoError(t, err)
		require.NoError(t, gpu.Copy([]device.Range{{Dst: target.Ptr(), Src: device.Ptr(values), Size: 8000}}, consumer))
		cdevice.ReleaseStruct(out)
		require.NoError(t, gpu.Flush(background))
		require.NoError(t, target.Free(consumer))
	})
}

// A GPU copies from another GPU's memory that was exported: it is not freed before that copy is done.
func TestGPUExportIsFreedBehindACopyToAPeer(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		if len(m.GPUs) < 2 {
			t.Skip("this machine has one GPU")
		}
		rec := columnsOf(memory.DefaultAllocator, 1, 1000, false)
		defer rec.Release()
		for _, dev := range []device.Device{m.GPUs[0], m.GPUs[0].Pinned(), m.GPUs[0].Managed()} {
			there := copiedTo(t, rec.Column(0), dev)
			out := garbageArray()
			require.NoError(t, cdevice.ExportArray(there, out, nil))
			there.Release()
			values := *abi.At[uintptr](out.Array.Buffers + 8)
			peer := m.GPUs[1]
			consumer := newStream(t, peer)
			target, err := peer.Allocate(background, 8000, consumer)
			require.NoError(t, err)
			require.NoError(t, peer.Copy([]device.Range{{Dst: target.Ptr(), Src: device.Ptr(values), Size: 8000}}, consumer))
			cdevice.ReleaseStruct(out)
			require.NoError(t, m.GPUs[0].Flush(background))
			if dev.ID().Type != device.CUDA { // which a cache has now, and gives to its next user
				reused := copiedTo(t, rec.Column(0), dev)
				reused.Release()
			}
			require.NoError(t, target.Free(consumer))
		}
	})
}

// used is a batch or an array that a consumer's stream reads.
type used interface {
	WaitOn(device.Stream) error
	UsedOn(device.Stream) error
	Release()
}

// The same for an import, where the consumer records its work. The producer reuses the memory as
// soon as it is released.
func TestGPUImportIsReleasedBehindItsUsers(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		for _, name := range []string{"batch", "array"} {
			producer, consumer := newStream(t, gpu), newStream(t, gpu)
			batch, want := filledByTwo(t, gpu, producer, producer)
			want.Release()
			column := batch.Column(0)
			values := column.Buffers()[1]
			reuse := cdevice.WithReleaser(func(release func()) {
				assert.NoError(t, gpu.Memset(values, 0, 4000, producer))
				release()
			})
			out, schema := garbageArray(), garbageSchema()
			var all used
			var err error
			if name == "array" {
				require.NoError(t, exportMade(out, schema)(column.RecordEvent(producer)))
				all, err = cdevice.ImportArray(out, schema, cdevice.WithDevice(gpu), reuse)
			} else {
				require.NoError(t, exportMade(out, schema)(batch.RecordEvent(producer)))
				all, err = cdevice.ImportRecordBatch(out, schema, cdevice.WithDevice(gpu), reuse)
			}
			require.NoError(t, err)
			column.Release()
			batch.Release()
			require.NoError(t, all.WaitOn(consumer))
			require.NoError(t, all.UsedOn(consumer))
			target, err := gpu.Allocate(background, 4000, consumer)
			require.NoError(t, err)
			require.NoError(t, gpu.Copy([]device.Range{{Dst: target.Ptr(), Src: values, Size: 4000}}, consumer))
			all.Release()
			require.NoError(t, gpu.Flush(background))
			require.NoError(t, target.Free(consumer))
		}
	})
}

// If no event marks the end of a copy, its memory is freed after all work.
func TestFailedCopyIsFreedBehindItself(t *testing.T) {
	checkLeaks(t)
	const unknown = 999
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	rec := columnsOf(memory.DefaultAllocator, 1, 1000, false)
	defer rec.Release()
	m.Sim.Fail("cuEventRecord", 1, unknown)
	_, err := cdevice.CopyToDevice(background, rec, gpu, cdevice.WithStream(newStream(t, gpu)))
	require.ErrorContains(t, err, "cuEventRecord")
	require.NoError(t, gpu.Flush(background))

	there, err := cdevice.CopyToDevice(background, rec, gpu, cdevice.WithStream(newStream(t, gpu)))
	require.NoError(t, err)
	m.Sim.Fail("cuEventQuery", 1, unknown)
	there.Release()
	_, met := m.Sim.Failed()
	assert.True(t, met)
	require.NoError(t, gpu.Flush(background))
}

// A recorded event covers the stream and the batch's own event.
func TestGPURecordedEventCoversTheBatch(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		rec := columnsOf(memory.DefaultAllocator, 2, 1000, false)
		defer rec.Release()
		pending, err := cdevice.CopyToDevice(background, rec, gpu, cdevice.WithStream(newStream(t, gpu)))
		require.NoError(t, err)
		imported := sent(t, made(t, pending)(pending.RecordEvent(newStream(t, gpu))), gpu)
		copied, err := imported.CopyTo(background, gpu, cdevice.WithStream(newStream(t, gpu)))
		require.NoError(t, err)
		sameBatchOnHost(t, rec, copied)
		copied.Release()
		imported.Release()
	})
}

// filledOn is [1, 2, 3] in memory that work on s fills, without an event.
func filledOn(t *testing.T, dev device.Device, s device.Stream) *cdevice.Array {
	t.Helper()
	numbers := filled(t, dev, s, arrow.Int64Traits.CastToBytes([]int64{1, 2, 3}))
	a, err := cdevice.NewArray(dev, arrow.PrimitiveTypes.Int64, cdevice.ArrayData{Length: 3, Buffers: []device.Ptr{0, numbers.Ptr()}},
		cdevice.Lifetime{Release: func() { assert.NoError(t, numbers.FreeAfter(nil)) }})
	require.NoError(t, err)
	return a
}

// An export without an event is one that may be read at once: by the host, or on any
// stream.
func TestGPUExportsWithoutEventWaitForTheStream(t *testing.T) {
	checkLeaks(t)
	want := fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,2,3]`)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		for _, dev := range m.Devices(t) {
			for _, name := range []string{"AsCPU", "Synchronize"} {
				if name == "AsCPU" && !dev.CPUAccessible() {
					continue
				}
				s := newStream(t, dev)
				a := filledOn(t, dev, s)
				out := garbageArray()
				a = made(t, a)(a.RecordEvent(s))
				if name == "AsCPU" {
					require.NoError(t, exportMade(out, nil)(a.AsCPU(background)))
				} else {
					require.NoError(t, a.Synchronize(background))
					require.NoError(t, cdevice.ExportArray(a, out, nil))
				}
				a.Release()
				assert.Zero(t, out.SyncEvent, name)
				if dev.CPUAccessible() {
					values := *abi.At[uintptr](out.Array.Buffers + 8)
					m.HostRead(device.Ptr(values), 24)
					assert.Equal(t, []int64{1, 2, 3}, abi.Slice[int64](values, 3), name)
				}
				var opts []cdevice.ImportOption
				if name == "Synchronize" {
					opts = append(opts, cdevice.WithDevice(dev))
				}
				back, err := cdevice.ImportArrayWithType(out, arrow.PrimitiveTypes.Int64, opts...)
				require.NoError(t, err)
				sameOnHost(t, want, back)
				back.Release()
				require.NoError(t, dev.Flush(background))
			}
		}
	})
}

// Reads of the host in CPU-accessible memory wait for the event. A pending copy fills
// its destination with garbage on the simulated machine whose work is lazy.
func TestGPUPendingHostMemoryIsReadBehindItsEvent(t *testing.T) {
	checkLeaks(t)
	want := fromJSON(t, arrow.BinaryTypes.String, `["a","bb",null,"ccc"]`)
	count := func(n int64) func(*testing.T, int64, error) {
		return func(t *testing.T, got int64, err error) {
			require.NoError(t, err)
			assert.Equal(t, n, got)
		}
	}
	same := func(t *testing.T, got arrow.Array, err error) {
		require.NoError(t, err)
		assert.True(t, array.Equal(want, got), "%v", got)
		got.Release()
	}
	reads := map[string]func(*testing.T, context.Context, *cdevice.Array){
		"nulls": func(t *testing.T, ctx context.Context, a *cdevice.Array) {
			n, err := a.CountNulls(ctx)
			count(1)(t, n, err)
		},
		"bytes": func(t *testing.T, ctx context.Context, a *cdevice.Array) {
			n, err := a.NumBytes(ctx)
			count(1+5*4+6)(t, n, err)
		},
		"view": func(t *testing.T, ctx context.Context, a *cdevice.Array) {
			got, err := a.HostView(ctx)
			same(t, got, err)
		},
		"copy": func(t *testing.T, ctx context.Context, a *cdevice.Array) {
			got, err := a.CopyToHost(ctx, nil)
			same(t, got, err)
		},
		"export": func(t *testing.T, ctx context.Context, a *cdevice.Array) {
			out := garbageArray()
			require.NoError(t, exportMade(out, nil)(a.AsCPU(ctx)))
			back, err := cdevice.ImportArrayWithType(out, arrow.BinaryTypes.String)
			require.NoError(t, err)
			sameOnHost(t, want, back)
			back.Release()
		},
		"wait": func(t *testing.T, ctx context.Context, a *cdevice.Array) {
			require.NoError(t, a.Synchronize(ctx))
			assert.Equal(t, []byte("abbccc"), abi.Slice[byte](uintptr(a.Buffers()[2]), 6))
		},
		"full validation": func(t *testing.T, ctx context.Context, a *cdevice.Array) {
			dev, err := a.Device()
			require.NoError(t, err)
			back := throughC(t, a, cdevice.WithDevice(dev))
			require.NoError(t, back.ValidateFull(ctx))
			sameOnHost(t, want, back)
			back.Release()
		},
	}
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		for _, dev := range m.Devices(t) {
			if !dev.CPUAccessible() {
				continue
			}
			for name, read := range reads {
				t.Run(dev.ID().String()+"/"+name, func(t *testing.T) {
					a := pendingText(t, dev, newStream(t, dev))
					for _, p := range a.Buffers() {
						require.NotZero(t, p)
					}
					read(t, background, a)
					for i, size := range []int64{1, 20, 6} {
						m.HostRead(a.Buffers()[i], size)
					}
					a.Release()
					require.NoError(t, dev.Flush(background))
				})
			}
		}
	})
}

// A batch that was waited for may be read on any stream, and by the host.
func TestGPUWaitOrdersTheCaller(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		rec := columnsOf(memory.DefaultAllocator, 1, 1000, false)
		defer rec.Release()
		for _, dev := range m.Devices(t) {
			there, err := cdevice.CopyToDevice(background, rec, dev, cdevice.WithStream(newStream(t, dev)))
			require.NoError(t, err)
			column := there.Column(0)
			values := column.Buffers()[1]
			column.Release()
			require.NoError(t, there.Synchronize(background))
			if dev.CPUAccessible() {
				m.HostRead(values, 8000)
			} else {
				readFrom(t, dev, uintptr(values), 8000)
			}
			there.Release()
		}
	})
}
