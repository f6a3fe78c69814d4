package cdevice_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

func validate(a arrow.Array) error {
	if v, ok := a.(interface{ ValidateFull() error }); ok {
		return v.ValidateFull()
	}
	return nil
}

// Arrays of every type, however they are presented, are copied to each kind of memory and to a device without optional
// interfaces, exported and imported there, and copied again.
func TestGPURoundTripOfEveryType(t *testing.T) {
	m := cudatest.One(t, cudasim.Options{})
	devices := []device.Device{coreDevice{m.GPUs[0]}}
	for _, dev := range m.Devices(t) {
		devices = append(devices, dev)
	}
	for i, dev := range devices {
		for _, c := range cases.All() {
			for _, v := range cases.Variants {
				t.Run(fmt.Sprintf("%d/%s/%s", i, c.Name, v), func(t *testing.T) {
					checkLeaks(t)
					want := kept(c.Array(memory.DefaultAllocator, v))(t)
					there := kept(copyArray(background, want, dev))(t)
					back := throughC(t, there, cdevice.WithDevice(dev))
					defer back.Release()
					again := kept(back.CopyTo(background, dev))(t)
					for _, a := range []*cdevice.Array{there, back, again} {
						assert.Equal(t, dev.ID(), a.DeviceID())
						sameOnHost(t, want, a)
					}
					if i > 0 { // a device that cannot be asked for allocations validates nothing
						validThroughout(t, again)
					}
				})
			}
		}
	}
}

// Batches of text are copied from every kind of memory to every other: the CPU's, that of all GPUs, page-locked and
// managed.
func TestGPUCopiesBetweenAllMemories(t *testing.T) {
	checkLeaks(t)
	m := cudatest.One(t, cudasim.Options{Devices: 2})
	rec := columnsOf(memory.DefaultAllocator, 2, 50, true)
	defer rec.Release()
	want := rec.NewSlice(3, 40)
	defer want.Release()
	all := []device.Device{device.CPUDevice()}
	for _, d := range m.Devices(t) {
		all = append(all, d)
	}
	for _, a := range all {
		first, err := cdevice.CopyToDevice(background, rec, a)
		require.NoError(t, err)
		part, err := first.Slice(3, 40)
		require.NoError(t, err)
		for _, b := range all {
			second, err := part.CopyTo(background, b)
			require.NoError(t, err, "%s to %s", a.ID(), b.ID())
			assert.Equal(t, b.ID(), second.DeviceID())
			sameBatchOnHost(t, want, second)
			if b.CPUAccessible() {
				assert.True(t, array.RecordEqual(want, viewOf(t, second)))
			}
			second.Release()
		}
		part.Release()
		first.Release()
	}
}

// unaligned returns the addresses of buffers of an array and of those below it that are no multiples of n.
func unaligned(a *cdevice.Array, n device.Ptr) (list []device.Ptr) {
	for _, p := range a.Buffers() {
		if p%n != 0 {
			list = append(list, p)
		}
	}
	for i := range a.NumChildren() {
		child := a.Child(i)
		list = append(list, unaligned(child, n)...)
		child.Release()
	}
	return list
}

// Copies are aligned in each kind of memory, however small the allocations are that lie between them.
func TestGPUCopiesAreAligned(t *testing.T) {
	cudatest.WithAndWithoutPools(t, cudasim.Options{}, func(t *testing.T, m *cudatest.Machine) {
		checkLeaks(t)
		alignments := map[device.Device]device.Ptr{device.CPUDevice(): 64, m.GPUs[0].Shareable(): 256}
		for _, dev := range m.Devices(t) {
			alignments[dev] = 256
		}
		for dev, alignment := range alignments {
			for _, c := range cases.All() {
				small, err := dev.Allocate(background, 1, nil)
				require.NoError(t, err)
				defer func() { require.NoError(t, small.Free(nil)) }()
				of := kept(c.Array(memory.DefaultAllocator, cases.Nulls))(t)
				there := kept(copyArray(background, of, dev))(t)
				again := kept(there.CopyTo(background, dev))(t)
				for _, a := range []*cdevice.Array{there, again} {
					assert.Empty(t, unaligned(a, alignment), "%s on %s", c.Name, dev.ID())
				}
			}
		}
	})
}

// The padding between the buffers of a copy to the host is zero, even in memory that was used
// before.
func TestCopiesArePaddedWithZeros(t *testing.T) {
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	pinned := cudatest.Pinned(t, gpu)
	dirty := pinned.Allocate(4096)
	for i := range dirty {
		dirty[i] = 0xff
	}
	pinned.Free(dirty)
	rec := columnsOf(memory.DefaultAllocator, 2, 5, true)
	defer rec.Release()
	batch, err := cdevice.CopyToDevice(background, rec, gpu)
	require.NoError(t, err)
	part, err := batch.Slice(1, 4)
	require.NoError(t, err)
	for _, b := range []*cdevice.RecordBatch{batch, part} {
		back, err := b.CopyToHost(background, pinned)
		require.NoError(t, err)
		for _, col := range back.Columns() {
			for _, buffer := range col.Data().Buffers()[1:] {
				used := buffer.Bytes()
				assert.Equal(t, make([]byte, 64-len(used)), used[len(used):64])
			}
		}
		back.Release()
		b.Release()
	}
	pinned.Trim()
}

// noting is an allocator that records its allocations.
type noting struct {
	memory.Allocator
	allocated, freed atomic.Bool
}

func (n *noting) Allocate(size int) []byte {
	n.allocated.Store(true)
	return n.Allocator.Allocate(size)
}

func (n *noting) Free(b []byte) {
	n.freed.Store(true)
	n.Allocator.Free(b)
}

// smallBatch is a batch on the device, whose copy there is done.
func smallBatch(t *testing.T, dev device.Device) *cdevice.RecordBatch {
	t.Helper()
	rec := columnsOf(memory.DefaultAllocator, 2, 500, false)
	defer rec.Release()
	batch, err := cdevice.CopyToDevice(background, rec, dev)
	require.NoError(t, err)
	require.NoError(t, batch.Synchronize(background))
	return batch
}

// givesUp copies the batch to the host on a stream that is stuck, gives up when the copy is
// enqueued, and checks that its memory stays until the stream got there. It releases the
// batch. before is called before the copy.
func givesUp(t *testing.T, m *cudatest.Machine, batch *cdevice.RecordBatch, before func()) {
	t.Helper()
	gpu := m.GPUs[0]
	s := newStream(t, gpu)
	open := m.Hold(t, s)
	pinned := cudatest.Pinned(t, gpu)
	mem := &noting{Allocator: pinned}
	ctx, cancel := context.WithCancel(background)
	wait := make(chan error, 1)
	before()
	go func() {
		_, err := batch.CopyToHost(ctx, mem, cdevice.WithStream(s))
		wait <- err
	}()
	for !mem.allocated.Load() { // so that the copy is enqueued, or will be
		runtime.Gosched()
	}
	for m.Sim != nil && m.Sim.Calls("cuStreamQuery") == 0 && len(wait) == 0 {
		runtime.Gosched()
	}
	assert.Empty(t, wait, "it has not waited for the copy")
	cancel()
	require.ErrorIs(t, <-wait, context.Canceled)
	assert.False(t, mem.freed.Load(), "the copy will still write to it")
	open()
	require.NoError(t, gpu.Flush(background))
	assert.True(t, mem.freed.Load())
	batch.Release()
	pinned.Trim()
}

// A copy from the device to page-locked memory is made by the device: nothing waits for it.
func TestGPUCopyToPageLockedMemoryIsEnqueued(t *testing.T) {
	checkLeaks(t)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		batch := smallBatch(t, gpu)
		s := newStream(t, gpu)
		open := m.Hold(t, s)
		var copied *cdevice.RecordBatch
		within.Seconds(t, "CopyTo", func() (err error) {
			copied, err = batch.CopyTo(background, gpu.Pinned(), cdevice.WithStream(s))
			return err
		})
		ready, err := copied.Ready()
		require.NoError(t, err)
		assert.False(t, ready)
		open()
		want := kept(batch.CopyToHost(background, nil))(t)
		got := kept(copied.HostView(background))(t)
		assert.True(t, array.RecordEqual(want, got))
		copied.Release()
		batch.Release()
	})
}

// A copy whose caller gives up goes on, so its memory stays until it is over. Where the driver makes or records no event, all
// work of the device is waited for.
func TestAbandonedCopyWithoutAnEventWaits(t *testing.T) {
	for _, function := range []string{"cuEventCreate", "cuEventRecord"} {
		m := cudatest.Simulated(t, cudasim.Options{})
		gpu := m.GPUs[0]
		batch := smallBatch(t, gpu)
		require.NoError(t, gpu.Trim(background)) // of events that could be used again, too
		givesUp(t, m, batch, func() {
			m.Sim.ResetCounters()
			m.Sim.Fail(function, 1, 999)
		})
		_, failed := m.Sim.Failed()
		assert.True(t, failed, function)
	}
}
