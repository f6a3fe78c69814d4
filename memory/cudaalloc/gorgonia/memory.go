//go:build gorgonia

package gorgonia

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"gorgonia.org/cu"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Owner is the owner of mem for cdevice.NewArray and cdevice.NewRecordBatch, which make
// arrays and batches of it without copying. Its event is complete when all work on s so
// far is done, the work that fills mem; s may be destroyed afterwards. A batched context
// of cu must have done its work, as work that it only collects is not on any stream yet.
//
// When the last user is gone, and no work of the GPU can be using the memory any more,
// free is called once for each of mem, with the context of dev current, on any
// goroutine. It is cu.MemFree for memory of cu.MemAlloc or cu.MemAllocManaged, and
// [Allocator.MemFree] for an allocator's. Its error is ignored.
//
// dev is the kind of memory, which is checked: gpu for cu.MemAlloc, gpu.Managed() for
// cu.MemAllocManaged. Memory from another context than the primary one is not
// detected on machines with unified addresses, and may not be used by other libraries
// there.
//
// It takes ownership of mem, even if it returns an error, unless dev or free is nil.
func Owner(dev *cudaalloc.Device, s cu.Stream, free func(cu.DevicePtr) error, mem ...cu.DevicePtr) (cdevice.Lifetime, error) {
	if dev == nil {
		return cdevice.Lifetime{}, argument.Nil("gorgonia: Owner", "dev", "a GPU")
	}
	if free == nil {
		return cdevice.Lifetime{}, argument.Nil("gorgonia: Owner", "free", "a function")
	}
	mem = slices.Clone(mem)
	release := func() {
		_ = Do(dev, func() error {
			for _, p := range mem {
				_ = free(p)
			}
			return nil
		})
	}
	ready, err := record(dev, s)
	if err == nil {
		err = check(dev, mem)
	}
	if err != nil {
		if ready != nil {
			_ = ready.Close() // the device tries again by itself
		}
		dev.AfterWork(release)
		return cdevice.Lifetime{}, err
	}
	return cdevice.Lifetime{Ready: ready, Release: release}, nil
}

// record returns an event behind all work on s so far, or an error and no event.
func record(dev *cudaalloc.Device, s cu.Stream) (device.Event, error) {
	stream, err := Stream(dev, s)
	if err != nil {
		return nil, err
	}
	e, err := dev.NewEvent()
	if err != nil {
		return nil, err
	}
	if err := stream.Record(e); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

func check(dev *cudaalloc.Device, mem []cu.DevicePtr) error {
	for _, p := range mem {
		at, err := dev.Lookup(Ptr(p))
		if err != nil {
			return err
		}
		if at.ID != dev.ID() {
			return fmt.Errorf("gorgonia: memory at %s is of %s, want %s", p, at.ID, dev.ID())
		}
	}
	return nil
}

// Column describes n values of a type of fixed width, such as arrow.PrimitiveTypes.Float32,
// that lie at p and of which none is null. Other columns are a cdevice.ArrayData with the
// buffers of their layout, each of them a [Ptr].
func Column(p cu.DevicePtr, n int64) cdevice.ArrayData {
	return cdevice.ArrayData{Length: n, Buffers: []device.Ptr{0, Ptr(p)}}
}

// Allocator allocates memory of a cudaalloc.Device for a program that uses cu. Its methods have
// the names of the functions of cu that they replace. It may be used from any goroutine.
type Allocator struct {
	dev    *cudaalloc.Device
	stream device.Stream

	mu   sync.Mutex
	live map[cu.DevicePtr]device.Memory
}

// NewAllocator returns an allocator of memory of dev (gpu, gpu.Managed() or gpu.Pinned()),
// which is allocated and freed in the order of s. s stays the caller's, and must live
// until all memory is freed. With cu.NoStream, the legacy default stream, the memory may
// be used by the functions of cu that take no stream.
func NewAllocator(dev *cudaalloc.Device, s cu.Stream) (*Allocator, error) {
	stream, err := Stream(dev, s)
	if err != nil {
		return nil, err
	}
	return &Allocator{dev: dev, stream: stream, live: map[cu.DevicePtr]device.Memory{}}, nil
}

// MemAlloc returns owned memory of size bytes, to be freed by [Allocator.MemFree] and by
// nothing else. Device memory may be used by work on the allocator's stream from now on,
// and by other streams after an event of it. 0 bytes are at the address 0.
func (a *Allocator) MemAlloc(size int64) (cu.DevicePtr, error) {
	m, err := a.dev.Allocate(context.Background(), size, a.stream)
	if err != nil {
		return 0, err
	}
	p := CUPtr(m.Ptr())
	if p != 0 {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.live[p] = m
	}
	return p, nil
}

// MemFree frees memory of this allocator, after the work that is on the allocator's
// stream; other streams must be done with it. Memory that is not the allocator's, or is
// freed already, is an error. The address 0 is allowed.
func (a *Allocator) MemFree(p cu.DevicePtr) error {
	if p == 0 {
		return nil
	}
	a.mu.Lock()
	m, ok := a.live[p]
	delete(a.live, p)
	a.mu.Unlock()
	if !ok {
		return fmt.Errorf("gorgonia: free %s: not memory of this allocator", p)
	}
	return m.Free(a.stream)
}
