package main

import (
	"context"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc" // which also registers devices named cuda
)

// copyArrayOn copies to a GPU as work on a CUstream, and does not wait for the copy.
func copyArrayOn(ctx context.Context, a *cdevice.Array, gpu, stream int64) (*cdevice.Array, error) {
	dev, option, err := streamOf(gpu, stream)
	if err != nil {
		return nil, err
	}
	return a.CopyTo(ctx, dev, option)
}

// copyBatchOn is copyArrayOn for a batch.
func copyBatchOn(ctx context.Context, b *cdevice.RecordBatch, gpu, stream int64) (*cdevice.RecordBatch, error) {
	dev, option, err := streamOf(gpu, stream)
	if err != nil {
		return nil, err
	}
	return b.CopyTo(ctx, dev, option)
}

func streamOf(gpu, stream int64) (*cudaalloc.Device, cdevice.CopyOption, error) {
	dev, err := cudaalloc.Open(gpu)
	if err != nil {
		return nil, nil, err
	}
	s, err := dev.WrapStream(uintptr(stream))
	if err != nil {
		return nil, nil, err
	}
	return dev, cdevice.WithStream(s), nil
}

// trimGPU waits for the work of a GPU, completes pending frees, and gives cached memory back. The first call opens the
// GPU for the life of the process.
func trimGPU(ctx context.Context, gpu int64) error {
	dev, err := cudaalloc.Open(gpu)
	if err != nil {
		return err
	}
	return dev.Trim(ctx)
}

// readGPUStats returns the live memory on a GPU, and the pending frees.
func readGPUStats(gpu int64) (map[string]any, error) {
	dev, err := cudaalloc.Open(gpu)
	if err != nil {
		return nil, err
	}
	s := dev.ReadStats()
	return map[string]any{
		"device_bytes": s.Device.Live, "host_bytes": s.Pinned.Live, "managed_bytes": s.Managed.Live,
		"waiting": s.Waiting, "lost": s.Lost,
	}, nil
}
