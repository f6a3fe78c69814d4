package metamorphic

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

// allocator is an allocator of arrow-go. One of each name serves all programs: what an allocator has cached is the GPU's until that is
// trimmed.
type allocator struct {
	memory.Allocator
	dev   device.Device // which batches of its arrays are wrapped as memory of
	limit int           // bytes that it has at most; 0: any number
	live  func() int64  // allocations in use; nil: not counted
}

// allocatorLimit is that of the limited ones, which no program needs: the one that has a fallback reaches its own.
const (
	allocatorLimit = 8 << 20
	fallbackLimit  = 1 << 18
)

// allocatorNames are all of them.
var allocatorNames = []string{"pinned", "pinned limited", "pinned or not", "managed", "managed limited"}

// allocator returns the allocator of a name: of page-locked memory where the GPU has no managed memory for one, of Go without a GPU.
func (s *setting) allocator(name string) (*allocator, error) {
	if s.machine == nil {
		return &allocator{Allocator: memory.DefaultAllocator, dev: device.CPUDevice()}, nil
	}
	if s.allocators == nil {
		s.allocators = map[string]*allocator{}
	}
	if s.allocators[name] == nil {
		a, err := s.newAllocator(name)
		if err != nil {
			return nil, err
		}
		s.allocators[name] = a
	}
	return s.allocators[name], nil
}

func (s *setting) newAllocator(name string) (*allocator, error) {
	gpu, limit := s.gpus[0], 0
	switch name {
	case "managed", "managed limited":
		var opts []cudaalloc.AllocatorOption
		if name == "managed limited" {
			limit = allocatorLimit
			opts = append(opts, cudaalloc.WithLimit(allocatorLimit))
		}
		a, err := cudaalloc.NewManagedAllocator(gpu, opts...)
		if !gpu.Managed().CPUAccessible() {
			if !is(err, device.ErrNotSupported) {
				return nil, fmt.Errorf("an allocator of memory that the CPU must not touch: %w", err)
			}
			return s.newAllocator("pinned limited")
		}
		if err != nil {
			return nil, err
		}
		return &allocator{a, a.Device(), limit, func() int64 { return a.ReadStats().Allocations }}, nil
	}
	var opts []hostpinned.AllocatorOption
	switch name {
	case "pinned limited":
		opts = append(opts, hostpinned.WithLimit(allocatorLimit))
	case "pinned or not":
		opts = append(opts, hostpinned.WithLimit(fallbackLimit), hostpinned.WithFallback(nil))
	}
	a, err := hostpinned.NewAllocator(gpu, opts...)
	if err != nil {
		return nil, err
	}
	made := &allocator{a, a.Device(), 0, func() int64 { return a.ReadStats().Pinned.Allocations + a.ReadStats().Fallback.Allocations }}
	switch name {
	case "pinned limited":
		made.limit = allocatorLimit
	case "pinned or not":
		made.dev = device.CPUDevice()
	}
	return made, nil
}

// refusal is what an allocator panics with.
func (a *allocator) refusal(f func()) (refused *cudaalloc.AllocationError) {
	defer func() {
		if err, ok := recover().(error); ok {
			asError(err, &refused)
		}
	}()
	f()
	return nil
}
