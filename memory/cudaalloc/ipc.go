package cudaalloc

import (
	"context"
	"errors"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// Shareable returns the device for memory on the GPU that other processes can open: device.CUDA, as
// [Device.Own], but each allocation is one of cuMemAlloc, outside the pool, and is given back to the driver
// when it is freed, since a handle refers to a whole allocation for as long as that lives. Allocating is slow
// (the driver works on whole pages of 2 MB), and the memory is freed once the GPU has no work.
func (d *Device) Shareable() *Device { return d.gpu.shareable }

// UUID returns the identity of the GPU, which is the same in all processes, while ordinals depend on
// CUDA_VISIBLE_DEVICES.
func (d *Device) UUID() ([16]byte, error) { return d.ctx.UUID() }

// MemoryHandle returns the handle by which other processes open the allocation that p is in, and where
// that is: the handle is of the whole allocation, of which p may be any address. The allocation is one of
// [Device.Shareable], or of another library that uses cuMemAlloc or cudaMalloc; it must live until each process
// that has opened it has closed it, or what these processes do with it is undefined.
//
// Memory of pools (all other memory of this package, and cudaMallocAsync), pinned and managed memory, plain
// host memory, and memory of another process are an error that wraps [device.ErrNotShareable].
func (d *Device) MemoryHandle(p device.Ptr) (device.IPCHandle, device.Allocation, error) {
	in, err := d.Lookup(p)
	if err != nil {
		return device.IPCHandle{}, device.Allocation{}, err
	}
	if in.ID.Type != device.CUDA {
		return device.IPCHandle{}, device.Allocation{}, notShareable(in.ID, p, nil)
	}
	if in.ID != d.Own().ID() {
		return device.IPCHandle{}, device.Allocation{}, fmt.Errorf("cuda: handle of the memory at %#x: it is of %s, want memory of %s", uintptr(p), in.ID, d.Own().ID())
	}
	h, err := d.ctx.MemoryHandle(in.Start)
	if errors.Is(err, cuda.InvalidValue) {
		err = notShareable(in.ID, p, err)
	}
	if err != nil {
		return device.IPCHandle{}, device.Allocation{}, err
	}
	return device.IPCHandle(h), in, nil
}

func notShareable(id device.ID, p device.Ptr, cause error) error {
	err := fmt.Errorf("cuda: handle of the %s memory at %#x: %w; copy it to memory of Device.Shareable first", id, uintptr(p), device.ErrNotShareable)
	if cause != nil {
		err = fmt.Errorf("%w (%w)", err, cause)
	}
	return err
}

// OpenMemory maps the first size bytes of an allocation of another process, which has made the handle with
// [Device.MemoryHandle] or cuIpcGetMemHandle. The caller frees the memory as any other memory: that closes it,
// once the GPU has no work, and never while a capture of a stream is visible. A handle that is opened twice is
// closed twice. The owner must keep the allocation until then.
//
// closed, unless it is nil, is called once the driver has closed the memory, as the functions of
// [Device.AfterWork] are: no pending work uses it then. It is not called for memory that the driver has
// failed to close ([Stats.Lost]). If the context is gone, and the memory with it, it is called.
//
// A handle of this process, of memory that was freed, of a process that has ended, of another GPU, and one
// of fewer than size bytes are errors; nothing stays open then.
func (d *Device) OpenMemory(ctx context.Context, h device.IPCHandle, size int64, closed func()) (device.Memory, error) {
	if size <= 0 {
		return nil, fmt.Errorf("cuda: open memory on %s: size = %d, want the bytes that the owner shares", d.Own().ID(), size)
	}
	if err := checkContext("open memory", ctx); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cuda: open memory on %s: %w", d.Own().ID(), err)
	}
	p, err := d.ctx.OpenMemory(cuda.Handle(h))
	if err != nil {
		return nil, err
	}
	m := &memory{dev: d.Own(), use: &d.opened, ptr: p, size: size, drop: d.ctx.CloseMemory, foreign: true}
	if err := m.checkOpened(); err != nil {
		m.use = new(usage) // it was never open for the caller
		return nil, errors.Join(err, m.FreeAfter(nil))
	}
	m.after = closed
	m.use.add(size)
	return m, nil
}

// checkOpened compares what the driver has opened with what the caller expects.
func (m *memory) checkOpened() error {
	in, err := m.dev.Lookup(m.ptr)
	switch {
	case err != nil:
		return err
	case in.ID != m.dev.ID():
		return fmt.Errorf("cuda: open memory on %s: it is memory of %s", m.dev.ID(), in.ID)
	case !in.Contains(m.ptr, m.size):
		return fmt.Errorf("cuda: open memory on %s: size = %d, but the allocation has %d bytes", m.dev.ID(), m.size, in.Size-int64(m.ptr-in.Start))
	}
	return nil
}

// NewSharedEvent returns an owned event that was never recorded, and the handle by which other processes open
// it. It must stay open until they have closed theirs.
func (d *Device) NewSharedEvent() (device.Event, device.IPCHandle, error) {
	word, err := d.ctx.NewSharedEvent()
	if err != nil {
		return nil, device.IPCHandle{}, err
	}
	e := d.ownEvent(word)
	h, err := d.ctx.EventHandle(word)
	if err != nil {
		return nil, device.IPCHandle{}, errors.Join(err, e.Close())
	}
	return e, device.IPCHandle(h), nil
}

// OpenEvent opens the event of another process, which has made the handle with [Device.NewSharedEvent] or
// cuIpcGetEventHandle. The caller owns the event of this process and closes it; the other one keeps its own until
// then. A handle of this process is an error.
func (d *Device) OpenEvent(h device.IPCHandle) (device.Event, error) {
	word, err := d.ctx.OpenEvent(cuda.Handle(h))
	if err != nil {
		return nil, err
	}
	return d.ownEvent(word), nil
}

// ownEvent is an owned event that is destroyed when it is closed: it is not for the free list.
func (d *Device) ownEvent(word uintptr) *Event {
	return &Event{handle{gpu: d.gpu, kind: "event", word: word, end: func() error { return d.ctx.FreeEvent(word) }}}
}
