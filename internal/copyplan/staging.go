package copyplan

import (
	"context"
	"fmt"
	"strings"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// The CPU memory that a device copies from and to. A device.Stager has page-locked memory for it; for
// other devices it is memory of C.

// readsLater reports whether an upload may read host memory at p after it has returned.
func readsLater(dev device.Device, p device.Ptr, size int64) bool {
	d, ok := dev.(device.Stager)
	return ok && d.PageLocked(p, size)
}

// allocateHost returns CPU memory that the device copies from and to: pinned memory, or memory of C
// if the device has none.
func allocateHost(ctx context.Context, dev device.Device, size int64) (device.Memory, error) {
	if d, ok := dev.(device.Stager); ok {
		return d.AllocateHost(ctx, size)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, err := allocateArrow(ctx, cAllocator, size)
	return cMemory{b}, err
}

var cAllocator = mallocator.NewMallocator()

// cMemory is memory of C: [layoutRead] computes addresses before its start, which Go's checks do
// not allow in Go memory.
type cMemory struct{ buffer *memory.Buffer }

// Ptr returns the address.
func (m cMemory) Ptr() device.Ptr { return device.Ptr(abi.AddressOf(m.buffer.Bytes())) }

// Size returns the size in bytes.
func (m cMemory) Size() int64 { return int64(m.buffer.Len()) }
func (m cMemory) free()       { m.buffer.Release() }

// Free frees the memory after the work enqueued on s so far.
func (m cMemory) Free(s device.Stream) error {
	afterStream(s, nil, m.free)
	return nil
}

// FreeAfter frees the memory after the event, which may be nil.
func (m cMemory) FreeAfter(e device.Event) error {
	if e == nil {
		m.free()
	} else {
		e.OnComplete(m.free)
	}
	return nil
}

// upload is device.Stager.Upload. For a device without Upload, it first copies all ranges to one
// piece of memory, which is kept until the device has read it.
func upload(ctx context.Context, dev device.Device, ranges []device.Range, s device.Stream) (device.Event, error) {
	if d, ok := dev.(device.Stager); ok {
		return d.Upload(ctx, ranges, s)
	}
	size := int64(0)
	for _, r := range ranges {
		size += r.Size
	}
	if size == 0 {
		return EventAfter(s)
	}
	host, err := allocateHost(ctx, dev, size)
	if err != nil {
		return nil, err
	}
	free := func() { _ = host.FreeAfter(nil) }
	in, out := make([]device.Range, len(ranges)), make([]device.Range, len(ranges))
	at := host.Ptr()
	for i, r := range ranges {
		in[i] = device.Range{Dst: at, Src: r.Src, Size: r.Size}
		out[i] = device.Range{Dst: r.Dst, Src: at, Size: r.Size}
		at += device.Ptr(r.Size)
	}
	if err := device.CPUDevice().Copy(in, nil); err != nil {
		free()
		return nil, err
	}
	if err := enqueueCopies(ctx, dev, out, s); err != nil {
		afterStream(s, nil, free) // some of the copies may be enqueued
		return nil, err
	}
	done, err := EventAfter(s)
	if err != nil {
		afterStream(s, nil, free)
		return nil, err
	}
	done.OnComplete(free)
	return done, nil
}

// allocateArrow turns the panic of an allocator that has no memory into an error. ctx ends the wait
// for memory, if the allocator can wait with a context.
func allocateArrow(ctx context.Context, mem memory.Allocator, size int64) (b *memory.Buffer, err error) {
	if m, ok := mem.(interface {
		TryAllocate(context.Context, int) ([]byte, error)
	}); ok {
		bytes, err := m.TryAllocate(ctx, int(size))
		if err != nil {
			return nil, fmt.Errorf("cdevice: copy: %w", err)
		}
		return memory.NewBufferWithAllocator(bytes, mem), nil
	}
	defer func() {
		if v := recover(); v != nil {
			b, err = nil, fmt.Errorf("cdevice: copy: no memory: %v", v)
			if cause, ok := v.(error); ok {
				err = fmt.Errorf("cdevice: copy: %w", cause)
			}
		}
	}()
	// Zeroing memory that is overwritten would take a good part of the time of the copy.
	switch m := mem.(type) {
	case interface{ AllocateUninitialized(int) []byte }:
		return memory.NewBufferWithAllocator(m.AllocateUninitialized(int(size)), mem), nil
	case *memory.GoAllocator:
		return memory.NewBufferWithAllocator(uninitialized(int(size)), mem), nil
	}
	return memory.NewBufferWithAllocator(mem.Allocate(int(size)), mem), nil
}

// uninitialized returns memory of Go's heap with undefined contents, aligned as that of memory.GoAllocator. make
// would clear memory that was used before, on one core: that takes as long as the copy that follows.
func uninitialized(size int) []byte {
	const alignment = 64
	var b strings.Builder
	b.Grow(size + alignment) // the one function of Go that does not clear
	b.WriteByte(0)           // the address of a string without bytes is unspecified
	all := unsafe.Slice(unsafe.StringData(b.String()), size+alignment)
	skip := -uintptr(unsafe.Pointer(&all[0])) % alignment
	return all[skip:][:size:size]
}
