package cudaalloc

import (
	"errors"
	"sync"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// Lookup asks the driver which allocation p is in, including allocations of other libraries.
func (d *Device) Lookup(p device.Ptr) (device.Allocation, error) {
	known, err := d.ctx.Query(p)
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
	gpu    *gpu   // nil: none is open
	remove func() // ends device.AddProber
}

// opened makes g the GPU that is asked.
func (p *prober) opened(g *gpu) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gpu == nil {
		p.remove = device.AddProber(p)
	}
	p.gpu = g
}

// ended stops asking g.
func (p *prober) ended(g *gpu) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gpu == g {
		p.gpu = nil
		p.remove()
	}
}

// Lookup asks the GPU. A driver that was shut down knows no memory.
func (p *prober) Lookup(at device.Ptr) (device.Allocation, error) {
	p.mu.Lock()
	g := p.gpu
	p.mu.Unlock()
	none := device.Allocation{ID: device.CPUDevice().ID()}
	if g == nil {
		return none, nil
	}
	found, err := g.own.Lookup(at)
	if errors.Is(err, cuda.Deinitialized) {
		p.ended(g)
		return none, nil
	}
	return found, err
}
