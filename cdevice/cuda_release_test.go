package cdevice_test

import (
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// copied copies the values of an exported array of int64 on the consumer's stream, and
// returns the copy.
func copied(t *testing.T, gpu device.Device, out *cdevice.CArrowDeviceArray, rows int64, consumer device.Stream) device.Memory {
	t.Helper()
	values := *abi.At[uintptr](out.Array.Buffers + 8)
	target, err := gpu.Allocate(background, 8*rows, consumer)
	require.NoError(t, err)
	require.NoError(t, gpu.Copy([]device.Range{{Dst: target.Ptr(), Src: device.Ptr(values), Size: 8 * rows}}, consumer))
	return target
}

// taken allocates and writes memory as the next user of the allocator does: one of the
// allocations is the memory that was given back last.
func taken(m *cudatest.Machine, mem memory.Allocator, size int) (all [][]byte) {
	for range 8 {
		b := mem.Allocate(size)
		m.HostWrite(device.Ptr(addressOf(&b[0])), int64(len(b)))
		all = append(all, b)
	}
	return all
}

// settled waits for the stream.
func settled(t *testing.T, target device.Memory, s device.Stream) device.Ptr {
	t.Helper()
	require.NoError(t, s.Synchronize(background))
	return target.Ptr()
}

// exportedWrapped exports the column of rec, of which the struct then holds all that is
// left. It takes rec.
func exportedWrapped(t *testing.T, rec arrow.RecordBatch, dev device.Device, what string) *cdevice.CArrowDeviceArray {
	t.Helper()
	var a *cdevice.Array
	if what == "array" {
		var err error
		a, err = cdevice.WrapArray(rec.Column(0), dev)
		require.NoError(t, err)
	} else {
		batch, err := cdevice.WrapRecordBatch(rec, dev)
		require.NoError(t, err)
		if what == "slice" {
			whole := batch
			batch, err = whole.Slice(0, 1000)
			require.NoError(t, err)
			whole.Release()
		}
		if what == "for the host" { // labelled as memory of the CPU, but known to the driver
			batch = made(t, batch)(batch.AsCPU(background))
		}
		a = batch.Column(0)
		if what == "batch" {
			out := garbageArray()
			require.NoError(t, cdevice.ExportRecordBatch(batch, out, nil))
			child := *abi.At[abi.ArrowArray](*abi.At[uintptr](out.Array.Children))
			abi.At[abi.ArrowArray](*abi.At[uintptr](out.Array.Children)).Release = 0 // moved out
			cdevice.ReleaseStruct(out)
			batch.Release()
			a.Release()
			rec.Release()
			return abi.As[cdevice.CArrowDeviceArray](&abi.ArrowDeviceArray{Array: child})
		}
		batch.Release()
	}
	rec.Release()
	out := garbageArray()
	require.NoError(t, cdevice.ExportArray(a, out, nil))
	a.Release()
	return out
}

// One wait is enough, and memory that was not exported needs none: its owner knows of all
// work that uses it. Nor does memory of the CPU.
func TestExportedMemoryWaitsOnce(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem := cudatest.Pinned(t, gpu)
	wrap := func(dev device.Device) *cdevice.RecordBatch {
		rec := columnsOf(mem, 1, 10, false)
		defer rec.Release()
		batch, err := cdevice.WrapRecordBatch(rec, dev)
		require.NoError(t, err)
		return batch
	}
	own := func(dev device.Device) *cdevice.RecordBatch {
		batch, err := cdevice.NewRecordBatch(dev, arrow.NewSchema(nil, nil), 0, nil, cdevice.Lifetime{Release: func() {}})
		require.NoError(t, err)
		return batch
	}
	for _, row := range []struct {
		name              string
		make              func(device.Device) *cdevice.RecordBatch
		kept, once, twice int // waits of a batch that is exported never, once, twice
	}{
		{"wrapped", wrap, 0, 1, 1},
		{"the caller's", own, 1, 1, 1},
	} {
		for exports, want := range []int{row.kept, row.once, row.twice} {
			waits := 0
			batch := row.make(waitCounting{gpu.Pinned(), &waits})
			var outs []*cdevice.CArrowDeviceArray
			for range exports {
				out := garbageArray()
				require.NoError(t, cdevice.ExportRecordBatch(batch, out, nil))
				outs = append(outs, out)
			}
			batch.Release()
			for _, out := range outs {
				cdevice.ReleaseStruct(out)
			}
			assert.Equal(t, want, waits, "%s, %d exports", row.name, exports)
		}
	}
	batch := wrap(device.CPUDevice())
	out := garbageArray()
	require.NoError(t, cdevice.ExportRecordBatch(batch, out, nil))
	batch.Release()
	live := mem.ReadStats().Pinned.Live
	assert.NotZero(t, live)
	cdevice.ReleaseStruct(out)
	require.NoError(t, gpu.Flush(background))
	live = mem.ReadStats().Pinned.Live
	assert.Zero(t, live)
}

// TestGPUReleaseBehindTheConsumer is about exported memory that a consumer's stream reads after release.
func TestGPUReleaseBehindTheConsumer(t *testing.T) {
	// A consumer releases an array in page-locked or managed memory that its stream still
	// reads: the allocator gives out the memory again only when the stream has read it.
	t.Run("wrapped memory", func(t *testing.T) {
		checkLeaks(t)
		cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
			gpu := m.GPUs[0]
			for _, mem := range hostAllocators(t, gpu) {
				for _, what := range []string{"batch", "array", "column", "slice", "for the host"} {
					rec := columnsOf(mem, 1, 1000, false)
					want := append([]int64(nil), rec.Column(0).(*array.Int64).Int64Values()...)
					consumer := newStream(t, gpu)
					out := exportedWrapped(t, rec, mem.Device(), what)
					target := copied(t, gpu, out, 1000, consumer)
					cdevice.ReleaseStruct(out)
					next := taken(m, mem, 8192)
					got := readFrom(t, gpu, uintptr(settled(t, target, consumer)), 8000)
					assert.Equal(t, arrow.Int64Traits.CastToBytes(want), got, "%s of %s", what, mem.Device().ID())
					for _, b := range next {
						mem.Free(b)
					}
					require.NoError(t, target.Free(consumer))
					require.NoError(t, gpu.Flush(background))
				}
			}
		})
	})
	// The same for copies into each kind of memory, with an event of their own too, of which any GPU reads, and for the
	// caller's memory.
	t.Run("copies and memory of the caller", func(t *testing.T) {
		checkLeaks(t)
		cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
			gpu := m.GPUs[0]
			rec := columnsOf(memory.DefaultAllocator, 1, 1000, false)
			defer rec.Release()
			for _, dev := range m.Devices(t) {
				if dev.Own() != gpu {
					continue
				}
				for _, peer := range m.GPUs {
					for _, recorded := range []bool{false, true} {
						there := copiedTo(t, rec.Column(0), dev)
						if recorded {
							there = made(t, there)(there.WithEvent(newStream(t, gpu)))
						}
						out := garbageArray()
						require.NoError(t, cdevice.ExportArray(there, out, nil))
						there.Release()
						consumer := newStream(t, peer)
						target := copied(t, peer, out, 1000, consumer)
						cdevice.ReleaseStruct(out)
						require.NoError(t, gpu.Flush(background))
						copiedTo(t, rec.Column(0), dev).Release() // in the memory, if it is in a cache
						require.NoError(t, target.Free(consumer))
					}
				}
			}
			for _, mem := range hostAllocators(t, gpu) {
				b := mem.Allocate(8000)
				at := device.Ptr(addressOf(&b[0]))
				m.HostWrite(at, 8000)
				a, err := cdevice.NewArray(mem.Device(), arrow.PrimitiveTypes.Int64, cdevice.ArrayData{Length: 1000, Buffers: []device.Ptr{0, at}},
					cdevice.Lifetime{Release: func() { mem.Free(b) }})
				require.NoError(t, err)
				out := garbageArray()
				require.NoError(t, cdevice.ExportArray(a, out, nil))
				a.Release()
				consumer := newStream(t, gpu)
				target := copied(t, gpu, out, 1000, consumer)
				cdevice.ReleaseStruct(out)
				for _, b := range taken(m, mem, 8192) {
					mem.Free(b)
				}
				require.NoError(t, gpu.Flush(background))
				require.NoError(t, target.Free(consumer))
			}
		})
	})
}

// waitingKinds release a column of mib bytes while a stream of another library is stuck.
func waitingKinds(t *testing.T, m *cudatest.Machine, stuck device.Stream) map[string]func() {
	gpu := m.GPUs[0]
	column := numbers(t, mib)
	exported := func(a *cdevice.Array) { // and released on a thread that is not Go's
		var out abi.ArrowDeviceArray
		require.NoError(t, cdevice.ExportArray(a, abi.As[cdevice.CArrowDeviceArray](&out), nil))
		a.Release()
		require.NoError(t, cpeer.ReleaseOnThread(&out.Array))
	}
	all := map[string]func(){
		"with an event of its own": func() {
			a := copiedTo(t, column, gpu)
			exported(made(t, a)(a.WithEvent(newStream(t, gpu))))
		},
		"of a caller": func() {
			mem, err := gpu.Allocate(background, mib, nil)
			require.NoError(t, err)
			data := cdevice.ArrayData{Length: mib / 8, Buffers: []device.Ptr{0, mem.Ptr()}}
			a, err := cdevice.NewArray(gpu, arrow.PrimitiveTypes.Int64, data, cdevice.Lifetime{Release: func() { assert.NoError(t, mem.FreeAfter(nil)) }})
			require.NoError(t, err)
			a.Release()
		},
		"imported": func() {
			there := copiedTo(t, column, gpu)
			a := throughC(t, there, cdevice.WithDevice(gpu))
			there.Release()
			require.NoError(t, a.UsedOn(stuck))
			a.Release()
		},
	}
	for _, dev := range []*cudaalloc.Device{gpu, gpu.Pinned(), gpu.Managed(), gpu.Shareable()} {
		all["copied to "+dev.ID().String()] = func() { exported(copiedTo(t, column, dev)) }
	}
	for _, mem := range hostAllocators(t, gpu) {
		of := mem.Device().ID().String()
		all["wrapped, of "+of] = func() { exported(wrappedBytes(t, mem, mib)) }
		all["of two columns, of "+of] = func() {
			one, two := wrappedBytes(t, mem, mib/2), wrappedBytes(t, mem, mib/2)
			batch, err := cdevice.RecordBatchFromArrays(arrow.NewSchema([]arrow.Field{{Type: one.DataType()}, {Type: two.DataType()}}, nil), one, two)
			require.NoError(t, err)
			one.Release()
			two.Release()
			column := batch.Column(0)
			batch.Release()
			exported(column) // which holds the memory of both
		}
	}
	return all
}

// wrappedBytes is an array in so many bytes of an allocator, which only its caller holds.
func wrappedBytes(t *testing.T, mem hostAllocator, size int) *cdevice.Array {
	values := memory.NewBufferWithAllocator(mem.Allocate(size), mem)
	data := array.NewData(arrow.PrimitiveTypes.Int64, size/8, []*memory.Buffer{nil, values}, nil, 0, 0)
	values.Release()
	arr := array.MakeFromData(data)
	data.Release()
	a, err := cdevice.WrapArray(arr, mem.Device())
	require.NoError(t, err)
	arr.Release()
	return a
}

// A reader of batches in page-locked or managed memory is exported with that memory's device, for which a release waits. No
// objects are listed here: then, structs of memory of the CPU are filled on a shorter way.
func TestGPUWrappedReadersKeepTheirDevice(t *testing.T) {
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		for _, mem := range hostAllocators(t, m.GPUs[0]) {
			rec := columnsOf(mem, 1, 1000, false)
			rdr, err := array.NewRecordReader(rec.Schema(), []arrow.RecordBatch{rec})
			require.NoError(t, err)
			rec.Release()
			r, err := cdevice.WrapRecordReader(rdr, mem.Device())
			require.NoError(t, err)
			rdr.Release()
			s := export(t, r)
			in, err := cdevice.ImportRecordReader(s)
			require.NoError(t, err)
			if assert.True(t, in.Next(), "%v", in.Err()) {
				assert.Equal(t, mem.Device().ID(), in.RecordBatch().DeviceID())
			}
			in.Release()
		}
	})
}

// Released memory of every kind that waits for pending work is counted. (Tests of internal/gpu have its limit.)
func TestWaitingMemoryIsCounted(t *testing.T) {
	checkLeaks(t)
	cudatest.WithAndWithoutPools(t, cudasim.Options{NoPoison: true}, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		stranger := m.Stranger(t, gpu)
		stuck, err := gpu.WrapStream(stranger.Handle)
		require.NoError(t, err)
		for name, once := range waitingKinds(t, m, stuck) {
			open := stranger.Hold(t)
			once()
			within.Eventually(t, name+" is counted", func() bool { return gpu.ReadStats().WaitingBytes > 0 })
			assert.InDelta(t, mib, gpu.ReadStats().WaitingBytes, 4096, name)
			open()
			within.Seconds(t, "Flush", func() error { return gpu.Flush(background) })
			require.Zero(t, gpu.ReadStats().WaitingBytes, name)
		}
	})
}

// A consumer of a plain struct works on the CPU: its release waits for no work of the GPU,
// which the release of a device struct does.
func TestGPUPlainReleaseWaitsForNoDevice(t *testing.T) {
	checkLeaks(t)
	m := cudatest.One(t, cudasim.Options{})
	gpu := m.GPUs[0]
	mem := cudatest.Pinned(t, gpu)
	for range 2 {
		waits := 0
		rec := columnsOf(mem, 1, 10, false)
		b, err := cdevice.WrapRecordBatch(rec, waitCounting{gpu.Pinned(), &waits})
		require.NoError(t, err)
		rec.Release()
		column := b.Column(0)
		outs := []*cdata.CArrowArray{garbagePlain(), garbagePlain()}
		require.NoError(t, cdevice.ExportRecordBatch(b, outs[0], nil))
		require.NoError(t, cdevice.ExportArray(column, outs[1], nil))
		column.Release()
		b.Release()
		busy := newStream(t, gpu)
		open := m.Hold(t, busy)
		for _, out := range outs {
			live := mem.ReadStats().Pinned.Live
			assert.NotZero(t, live)
			cdevice.ReleaseStruct(out)
		}
		live := mem.ReadStats().Pinned.Live
		assert.Zero(t, live, "the memory is back, although the GPU is busy")
		assert.Zero(t, waits)
		open()
	}
	require.NoError(t, gpu.Flush(background))
}

// A copy of a combined batch may be the last to read the memory of one of its arrays. Where another reference to that ends later, on a thread
// that has waited for nothing, the program is told all the same that the work is done.
func TestMemoryOfCombinedArraysEndsAfterTheirCopies(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{PageableAsync: true})
	gpu := m.GPUs[0]
	first, err := cdevice.WrapArray(fromJSON(t, arrow.PrimitiveTypes.Int64, "[1, 2, 3]"), device.CPUDevice())
	require.NoError(t, err)
	defer first.Release()
	s := arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.PrimitiveTypes.Int64, Nullable: true}, {Name: "b", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
	for range 20 {
		managed, err := gpu.Managed().Allocate(background, 24, nil)
		require.NoError(t, err)
		m.HostWrite(managed.Ptr(), 24)
		second, err := cdevice.NewArray(device.CPUDevice(), arrow.PrimitiveTypes.Int64, cdevice.ArrayData{Length: 3, Buffers: []device.Ptr{0, managed.Ptr()}},
			cdevice.Lifetime{Release: func() {
				m.HostWrite(managed.Ptr(), 24)
				assert.NoError(t, managed.FreeAfter(nil))
			}})
		require.NoError(t, err)
		b, err := cdevice.RecordBatchFromArrays(s, first, second)
		require.NoError(t, err)
		there, err := b.CopyTo(background, gpu)
		require.NoError(t, err)
		b.Release()
		time.Sleep(time.Millisecond) // so that the reference of the copy has ended, mostly
		second.Release()
		there.Release()
	}
}
