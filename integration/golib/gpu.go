//go:build cgo

package main

import (
	"context"
	"sync"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

// Devices are named by the type and id of ArrowDeviceArray. GPUs are those of the default driver, which
// CDEVICE_CUDA_DRIVER names. A stream is a CUstream, the address that the driver gave it; where 0 is allowed, it is none.

func init() {
	pyextension.Func("gpu_name", gpuName, pyextension.WithParams("gpu"))
	pyextension.Func("trim_gpu", trimGPU, pyextension.WithParams("gpu"))
	pyextension.Func("read_gpu_stats", readGPUStats, pyextension.WithParams("gpu"))
	pyextension.Func("make_pinned_array", makePinnedArray, pyextension.WithParams("case", "variant", "gpu"))
}

func openDevice(deviceType int32, id int64) (device.Device, error) {
	if device.Type(deviceType) == device.CPU {
		return device.CPUDevice(), nil
	}
	return device.Open(device.ID{Type: device.Type(deviceType), Ordinal: id})
}

// target opens the device that a copy goes to.
func target(deviceType int32, id int64, stream uint64) (device.Device, []cdevice.CopyOption, error) {
	dev, err := openDevice(deviceType, id)
	if err != nil || stream == 0 {
		return dev, nil, err
	}
	s, err := dev.WrapStream(uintptr(stream))
	return dev, []cdevice.CopyOption{cdevice.WithStream(s)}, err
}

// gpuName returns the name of a GPU, opening it for the life of the process: its primary context, one stream, and a pool
// once it allocates.
func gpuName(gpu int64) (string, error) {
	dev, err := cudaalloc.Open(gpu)
	if err != nil {
		return "", err
	}
	return dev.Name(), nil
}

// trimGPU waits for the work of a GPU, completes pending frees, and gives cached memory back. It is for a GPU that may do
// its work.
func trimGPU(ctx context.Context, gpu int64) error {
	dev, err := cudaalloc.Open(gpu)
	if err != nil {
		return err
	}
	return dev.Trim(ctx)
}

// readGPUStats returns the live memory on a GPU, and the pending frees.
func readGPUStats(gpu int64) (map[string]int64, error) {
	dev, err := cudaalloc.Open(gpu)
	if err != nil {
		return nil, err
	}
	s := dev.ReadStats()
	return map[string]int64{
		"device_bytes": s.Device.Live, "host_bytes": s.Pinned.Live, "managed_bytes": s.Managed.Live,
		"waiting": s.Waiting, "lost": s.Lost,
	}, nil
}

var pinned = struct {
	sync.Mutex
	allocators map[int64]*hostpinned.Allocator // by GPU
}{allocators: map[int64]*hostpinned.Allocator{}}

func pinnedAllocator(gpu int64) (*hostpinned.Allocator, error) {
	pinned.Lock()
	defer pinned.Unlock()
	if a := pinned.allocators[gpu]; a != nil {
		return a, nil
	}
	dev, err := cudaalloc.Open(gpu)
	if err != nil {
		return nil, err
	}
	a, err := hostpinned.NewAllocator(dev)
	if err != nil {
		return nil, err
	}
	pinned.allocators[gpu] = a
	return a, nil
}

// makePinnedArray is makeArray in the page-locked memory of a GPU, where arrow-go's builders write it.
func makePinnedArray(name, variant string, gpu int64) (*cdevice.Array, error) {
	mem, err := pinnedAllocator(gpu)
	if err != nil {
		return nil, err
	}
	c, err := findCase(name)
	if err != nil {
		return nil, err
	}
	arr, err := c.Array(mem, cases.Variant(variant))
	if err != nil {
		return nil, err
	}
	defer arr.Release()
	return cdevice.WrapArray(arr, mem.Device())
}
