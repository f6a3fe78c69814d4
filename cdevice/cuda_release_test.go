package cdevice_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
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
	// The same for copies into each kind of memory, with an event of their own too, and for the caller's
	// memory.
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
				for _, recorded := range []bool{false, true} {
					there, err := copyArray(background, rec.Column(0), dev)
					require.NoError(t, err)
					require.NoError(t, there.Synchronize(background))
					if recorded {
						there = made(t, there)(there.RecordEvent(newStream(t, gpu)))
					}
					out := garbageArray()
					require.NoError(t, cdevice.ExportArray(there, out, nil))
					there.Release()
					consumer := newStream(t, gpu)
					target := copied(t, gpu, out, 1000, consumer)
					cdevice.ReleaseStruct(out)
					require.NoError(t, gpu.Flush(background))
					require.NoError(t, target.Free(consumer))
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

// Released memory of every kind that waits for pending work is counted and limited.

// exportedAndReleased exports an array, drops it, and releases the export on a thread that is not Go's.
// It takes the array.
func exportedAndReleased(a *cdevice.Array) error {
	var out abi.ArrowDeviceArray
	err := cdevice.ExportArray(a, abi.As[cdevice.CArrowDeviceArray](&out), nil)
	a.Release()
	if err != nil {
		return err
	}
	return cpeer.ReleaseOnThread(&out.Array)
}

// waitingKinds release a column of mib bytes while a stream of another library is stuck.
func waitingKinds(t *testing.T, m *cudatest.Machine, stuck device.Stream) map[string]func() error {
	gpu := m.GPUs[0]
	column := numbers(t, mib)
	copied := func(dev device.Device, prepare func(*cdevice.Array) (*cdevice.Array, error)) func() error {
		return func() error {
			a, err := copyArray(background, column, dev)
			if err != nil {
				return err
			}
			if prepare != nil {
				before := a
				a, err = prepare(a)
				before.Release()
				if err != nil {
					return err
				}
			}
			return exportedAndReleased(a)
		}
	}
	all := map[string]func() error{
		"device":    copied(gpu, nil),
		"pinned":    copied(gpu.Pinned(), nil),
		"managed":   copied(gpu.Managed(), nil),
		"shareable": copied(gpu.Shareable(), nil),
		"with an event of its own": copied(gpu, func(a *cdevice.Array) (*cdevice.Array, error) {
			s := newStream(t, gpu)
			return a.RecordEvent(s)
		}),
		"of a caller": func() error {
			mem, err := gpu.Allocate(background, mib, nil)
			if err != nil {
				return err
			}
			a, err := cdevice.NewArray(gpu, arrow.PrimitiveTypes.Int64, cdevice.ArrayData{Length: mib / 8, Buffers: []device.Ptr{0, mem.Ptr()}},
				cdevice.Lifetime{Release: func() { assert.NoError(t, mem.FreeAfter(nil)) }})
			if err != nil {
				return err
			}
			a.Release()
			return nil
		},
		"imported": func() error {
			a, err := copyArray(background, column, gpu)
			if err != nil {
				return err
			}
			if err := a.Synchronize(background); err != nil {
				return err
			}
			out, schema := garbageArray(), garbageSchema()
			if err := exportMade(out, schema)(a, nil); err != nil {
				return err
			}
			imported, err := cdevice.ImportArray(out, schema, cdevice.WithDevice(gpu))
			if err != nil {
				return err
			}
			defer imported.Release()
			return imported.UsedOn(stuck)
		},
	}
	for i, mem := range hostAllocators(t, gpu) {
		all["wrapped, "+[]string{"pinned", "managed"}[i]] = func() error {
			b, err := mem.(interface {
				TryAllocate(context.Context, int) ([]byte, error)
			}).TryAllocate(background, mib)
			if err != nil {
				return err
			}
			values := memory.NewBufferWithAllocator(b, mem)
			data := array.NewData(arrow.PrimitiveTypes.Int64, mib/8, []*memory.Buffer{nil, values}, nil, 0, 0)
			values.Release()
			arr := array.MakeFromData(data)
			data.Release()
			a, err := cdevice.WrapArray(arr, mem.Device())
			arr.Release()
			if err != nil {
				return err
			}
			return exportedAndReleased(a)
		}
	}
	return all
}

func TestWaitingMemoryIsLimited(t *testing.T) {
	checkLeaks(t)
	const limit = 16 * mib
	withAndWithoutPools(t, cudasim.Options{NoPoison: true}, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		limits := gpu.Limits()
		limits.Waiting = limit
		require.NoError(t, gpu.SetLimits(limits))
		stranger := m.Stranger(t, gpu)
		stuck, err := gpu.WrapStream(stranger.Handle)
		require.NoError(t, err)
		kinds := waitingKinds(t, m, stuck)
		for name, once := range kinds {
			open := stranger.Hold(t)
			require.NoError(t, once(), name)
			within.Eventually(t, name+" is counted", func() bool { return gpu.ReadStats().WaitingBytes > 0 })
			assert.InDelta(t, mib, gpu.ReadStats().WaitingBytes, 4096, name)
			open()
			within.Seconds(t, "Flush", func() error { return gpu.Flush(background) })
			require.Zero(t, gpu.ReadStats().WaitingBytes, name)
		}

		open := stranger.Hold(t)
		var rounds atomic.Int64
		errs := make(chan error, len(kinds))
		for _, once := range kinds {
			go func() {
				for range 200 {
					if err := once(); err != nil {
						errs <- err
						return
					}
					rounds.Add(1)
				}
				errs <- nil
			}()
		}
		within.Limit(t, time.Minute, "all kinds until there is too much of them", func() error {
			for range kinds {
				if err := <-errs; !errors.Is(err, cudaalloc.OutOfMemory) ||
					!strings.Contains(err.Error(), "bytes that were freed wait for pending work of the GPU: Limits.Waiting is 16777216 bytes") ||
					strings.Contains(err.Error(), ": 0 bytes") {
					return fmt.Errorf("of an allocation beyond the limit: %w", err)
				}
			}
			return nil
		})
		// Each kind may be beyond its check, and has what is left of the memory that its allocator took.
		most := int64(limit/mib + 4*len(kinds))
		assert.LessOrEqual(t, rounds.Load(), most)
		assert.LessOrEqual(t, gpu.ReadStats().WaitingBytes, most*(mib+4096))
		assert.Greater(t, gpu.ReadStats().WaitingBytes, int64(limit))
		open()
		within.Seconds(t, "Flush", func() error { return gpu.Flush(background) })
		assert.Zero(t, gpu.ReadStats().WaitingBytes)
		for name, once := range kinds {
			require.NoError(t, once(), name)
		}
	})
}
