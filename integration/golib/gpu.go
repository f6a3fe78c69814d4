package main

// #include <stdint.h>
import "C"

import (
	"context"
	"fmt"
	"sync"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// Devices are named by the type and id of ArrowDeviceArray. GPUs are those of
// the default driver, which CDEVICE_CUDA_DRIVER names. A stream is a CUstream,
// the address that the driver gave it; where 0 is allowed, it is none.

func openDevice(deviceType C.int32_t, id C.int64_t) (device.Device, error) {
	if device.Type(deviceType) == device.CPU {
		return device.CPUDevice(), nil
	}
	return device.Open(device.ID{Type: device.Type(deviceType), Ordinal: int64(id)})
}

func copyOptions(dev device.Device, stream C.uintptr_t) ([]cdevice.CopyOption, error) {
	if stream == 0 {
		return nil, nil
	}
	s, err := dev.WrapStream(uintptr(stream))
	if err != nil {
		return nil, err
	}
	return []cdevice.CopyOption{cdevice.WithStream(s)}, nil
}

// golib_gpu_name returns the name of a GPU, opening it for the life of the process: its primary
// context, one stream, and a pool once it allocates.
//
//export golib_gpu_name
func golib_gpu_name(ordinal C.int64_t, out **C.char) *C.char {
	return answer(out, func() (any, error) {
		gpu, err := cudaalloc.Open(int64(ordinal))
		if err != nil {
			return nil, err
		}
		return gpu.Name(), nil
	})
}

// golib_gpu_trim waits for the work of a GPU, completes pending frees, and gives cached memory
// back. It is for a GPU that may do its work.
//
//export golib_gpu_trim
func golib_gpu_trim(ordinal C.int64_t) *C.char {
	return guard(func() error {
		gpu, err := cudaalloc.Open(int64(ordinal))
		if err != nil {
			return err
		}
		return gpu.Trim(context.Background())
	})
}

// golib_gpu_stats returns golib's live memory on a GPU, and the pending frees.
//
//export golib_gpu_stats
func golib_gpu_stats(ordinal C.int64_t, out **C.char) *C.char {
	return answer(out, func() (any, error) {
		gpu, err := cudaalloc.Open(int64(ordinal))
		if err != nil {
			return nil, err
		}
		s := gpu.ReadStats()
		return map[string]int64{
			"device_bytes":  s.Device.Live,
			"host_bytes":    s.Pinned.Live,
			"managed_bytes": s.Managed.Live,
			"waiting":       s.Waiting,
			"lost":          s.Lost,
		}, nil
	})
}

var pinned = struct {
	sync.Mutex
	allocators map[int64]*hostpinned.Allocator // by GPU
}{allocators: map[int64]*hostpinned.Allocator{}}

func pinnedAllocator(ordinal int64) (*hostpinned.Allocator, error) {
	pinned.Lock()
	defer pinned.Unlock()
	if a := pinned.allocators[ordinal]; a != nil {
		return a, nil
	}
	gpu, err := cudaalloc.Open(ordinal)
	if err != nil {
		return nil, err
	}
	a, err := hostpinned.NewAllocator(gpu)
	if err != nil {
		return nil, err
	}
	pinned.allocators[ordinal] = a
	return a, nil
}

// golib_make_pinned_array is golib_make_array in the page-locked memory of a GPU,
// where arrow-go's builders write it.
//
//export golib_make_pinned_array
func golib_make_pinned_array(name, variant *C.char, ordinal C.int64_t, out *C.uint64_t) *C.char {
	return create(out, func() (thing, error) {
		mem, err := pinnedAllocator(int64(ordinal))
		if err != nil {
			return nil, err
		}
		c, err := findCase(name)
		if err != nil {
			return nil, err
		}
		arr, err := c.Array(mem, cases.Variant(C.GoString(variant)))
		if err != nil {
			return nil, err
		}
		defer arr.Release()
		a, err := cdevice.WrapArray(arr, mem.Device())
		if err != nil {
			return nil, err
		}
		return anArray{a}, nil
	})
}

// onDevice has the methods of objects whose memory pending work may use.
type onDevice interface {
	Ready() (bool, error)
	Synchronize(context.Context) error
	WaitOn(device.Stream) error
	UsedOn(device.Stream) error
	DeviceID() device.ID
}

func onDeviceOf(handle C.uint64_t) (onDevice, error) {
	t, err := get(handle)
	if err != nil {
		return nil, err
	}
	d, ok := t.(onDevice)
	if !ok {
		return nil, fmt.Errorf("golib: handle %d has no device", handle)
	}
	return d, nil
}

// golib_copy_to copies to a device, on a stream of that device if it is given. It
// returns when the copy is enqueued.
//
//export golib_copy_to
func golib_copy_to(handle C.uint64_t, deviceType C.int32_t, id C.int64_t, stream C.uintptr_t, out *C.uint64_t) *C.char {
	return create(out, func() (thing, error) {
		t, err := get(handle)
		if err != nil {
			return nil, err
		}
		dev, err := openDevice(deviceType, id)
		if err != nil {
			return nil, err
		}
		opts, err := copyOptions(dev, stream)
		if err != nil {
			return nil, err
		}
		return t.copyTo(dev, opts...)
	})
}

// golib_ready reports whether the event is complete.
//
//export golib_ready
func golib_ready(handle C.uint64_t, out **C.char) *C.char {
	return answer(out, func() (any, error) {
		d, err := onDeviceOf(handle)
		if err != nil {
			return nil, err
		}
		return d.Ready()
	})
}

//export golib_wait
func golib_wait(handle C.uint64_t) *C.char {
	return guard(func() error {
		d, err := onDeviceOf(handle)
		if err != nil {
			return err
		}
		return d.Synchronize(context.Background())
	})
}

// withStream calls f with a stream of the object's device.
func withStream(handle C.uint64_t, stream C.uintptr_t, f func(onDevice, device.Stream) error) *C.char {
	return guard(func() error {
		d, err := onDeviceOf(handle)
		if err != nil {
			return err
		}
		at := d.DeviceID()
		dev, err := openDevice(C.int32_t(at.Type), C.int64_t(at.Ordinal))
		if err != nil {
			return err
		}
		s, err := dev.WrapStream(uintptr(stream))
		if err != nil {
			return err
		}
		return f(d, s)
	})
}

// golib_wait_on makes a stream wait for the event.
//
//export golib_wait_on
func golib_wait_on(handle C.uint64_t, stream C.uintptr_t) *C.char {
	return withStream(handle, stream, func(d onDevice, s device.Stream) error { return d.WaitOn(s) })
}

// golib_used_on records that work on a stream uses the memory.
//
//export golib_used_on
func golib_used_on(handle C.uint64_t, stream C.uintptr_t) *C.char {
	return withStream(handle, stream, func(d onDevice, s device.Stream) error { return d.UsedOn(s) })
}

// golib_export_after is golib_export with an event of its own, behind the work that
// a stream has now.
//
//export golib_export_after
func golib_export_after(handle C.uint64_t, array, schema, stream C.uintptr_t) *C.char {
	return withStream(handle, stream, func(_ onDevice, s device.Stream) error {
		t, err := get(handle)
		if err != nil {
			return err
		}
		if t, err = t.recordEvent(s); err != nil {
			return err
		}
		defer t.Release()
		return t.export(cdevice.DeviceArrayFromPtr(uintptr(array)), cdevice.SchemaFromPtr(uintptr(schema)))
	})
}
