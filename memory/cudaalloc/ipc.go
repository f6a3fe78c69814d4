package cudaalloc

import (
	"context"
	"errors"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// UUID returns the identity of the GPU, which is the same in all processes, while ordinals depend on
// CUDA_VISIBLE_DEVICES.
func (d *Device) UUID() ([16]byte, error) { return d.gpu.Ctx.UUID() }

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
	h, err := d.gpu.Ctx.MemoryHandle(in.Start)
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
	if err := argument.Context("cuda: open memory", ctx); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("cuda: open memory on %s: %w", d.Own().ID(), err)
	}
	m := &memory{dev: d.Own()}
	if err := d.gpu.Heap.Open(&m.Memory, cuda.Handle(h), size, closed); err != nil {
		return nil, err
	}
	return m, nil
}

// NewSharedEvent returns an owned event that was never recorded, and the handle by which other processes open
// it. It must stay open until they have closed theirs.
func (d *Device) NewSharedEvent() (device.Event, device.IPCHandle, error) {
	e := d.newEvent()
	h, err := d.gpu.Events.NewForIPC(&e.handle)
	if err != nil {
		return nil, device.IPCHandle{}, err
	}
	return e, device.IPCHandle(h), nil
}

// OpenEvent opens the event of another process, which has made the handle with [Device.NewSharedEvent] or
// cuIpcGetEventHandle. The caller owns the event of this process and closes it; the other one keeps its own until
// then. A handle of this process is an error.
func (d *Device) OpenEvent(h device.IPCHandle) (device.Event, error) {
	e := d.newEvent()
	if err := d.gpu.Events.OpenForIPC(&e.handle, cuda.Handle(h)); err != nil {
		return nil, err
	}
	return e, nil
}
