package gpu

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
)

// Platform has the open GPUs of one driver.
type Platform struct {
	Driver *cuda.Driver
	locked ranges // page-locked for all its GPUs
	mu     sync.Mutex
	gpus   map[int64]*opening
	prober prober
	owners sync.Map // int32 -> *GPU: those that are open, by ordinal
	// several reports whether the driver has more than one GPU: only then can memory be
	// another one's.
	several atomic.Bool
}

type opening struct {
	mu  sync.Mutex
	gpu *GPU
}

var platforms = struct {
	sync.Mutex
	byDriver map[*cuda.Driver]*Platform
}{byDriver: map[*cuda.Driver]*Platform{}}

// OpenPlatform loads the driver from a path; "" is the default driver.
func OpenPlatform(path string) (*Platform, error) {
	driver, err := cuda.Open(path)
	if err != nil {
		return nil, err
	}
	platforms.Lock()
	defer platforms.Unlock()
	p, ok := platforms.byDriver[driver]
	if !ok {
		p = &Platform{Driver: driver, gpus: map[int64]*opening{}}
		platforms.byDriver[driver] = p
	}
	return p, nil
}

// Open returns the GPU with this ordinal, and opens it at the first call, and anew after its context was
// reset. made is called for a GPU that was opened, before any other goroutine has it.
func (p *Platform) Open(ordinal int64, made func(*GPU) error) (*GPU, error) {
	count, err := p.Driver.DeviceCount()
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= int64(count) {
		return nil, fmt.Errorf("cuda: open cuda:%d: the driver has %d devices, numbered from 0 (%s): %w", ordinal, count, cuda.Hidden(), device.ErrNotSupported)
	}
	p.several.Store(count > 1)
	p.mu.Lock()
	o, ok := p.gpus[ordinal]
	if !ok {
		o = new(opening)
		p.gpus[ordinal] = o
	}
	p.mu.Unlock()

	o.mu.Lock()
	defer o.mu.Unlock()
	before := o.gpu
	if before != nil && !before.Gone() {
		return before, nil
	}
	opened, err := openGPU(p, int(ordinal), made)
	if err != nil {
		return nil, err
	}
	o.gpu = opened
	if before != nil {
		before.abandon(opened)
	}
	return opened, nil
}

// owner is the open GPU with this ordinal, or nil.
func (p *Platform) owner(ordinal int32) *GPU {
	g, _ := p.owners.Load(ordinal)
	owner, _ := g.(*GPU)
	return owner
}

// others are the other GPUs that are open. Each may copy from memory of g, and from page-locked memory.
func (p *Platform) others(g *GPU) (list []*GPU) {
	if p.several.Load() {
		p.owners.Range(func(_, other any) bool {
			if other != g {
				list = append(list, other.(*GPU))
			}
			return true
		})
	}
	return list
}
