package gpu

import (
	"errors"
	"sync"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// Lookup asks the driver of a context which allocation p is in, including allocations of other libraries.
func Lookup(ctx *cuda.Context, p device.Ptr) (device.Allocation, error) {
	known, err := ctx.Query(p)
	if err != nil {
		return device.Allocation{}, err
	}
	t := device.CUDA
	switch {
	case known.Managed:
		t = device.CUDAManaged
	case known.Memory == cuda.HostMemory:
		t = device.CUDAHost
	case known.Memory != cuda.DeviceMemory:
		return device.Allocation{ID: device.CPUDevice().ID()}, nil
	}
	return device.Allocation{
		ID:    device.ID{Type: t, Ordinal: int64(known.Ordinal)},
		Start: device.Ptr(known.Start), Size: int64(known.Size),
	}, nil
}

// prober answers device.Lookup for a driver while one of its GPUs is open. One GPU is
// enough: it knows the memory of all GPUs of its driver.
type prober struct {
	mu     sync.Mutex
	ctx    *cuda.Context // of the GPU; nil: none is open
	remove func()        // ends device.AddProber
}

// opened makes the GPU with this context the one that is asked.
func (p *prober) opened(ctx *cuda.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx == nil {
		p.remove = device.AddProber(p)
	}
	p.ctx = ctx
}

// ended stops asking the GPU with this context.
func (p *prober) ended(ctx *cuda.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx == ctx {
		p.ctx = nil
		p.remove()
	}
}

// Lookup asks the GPU. A driver that was shut down knows no memory.
func (p *prober) Lookup(at device.Ptr) (device.Allocation, error) {
	p.mu.Lock()
	ctx := p.ctx
	p.mu.Unlock()
	none := device.Allocation{ID: device.CPUDevice().ID()}
	if ctx == nil {
		return none, nil
	}
	found, err := Lookup(ctx, at)
	if errors.Is(err, cuda.Deinitialized) {
		p.ended(ctx)
		return none, nil
	}
	return found, err
}
