package main

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/measure"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// repeats is how many allocations and frees are one measurement.
const repeats = 20

// named is a size with its name.
func named(bytes int64) string {
	if bytes < mib {
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d MiB", bytes/mib)
}

// warm compares an allocation of device memory and its free, where freed memory is kept, with those of the driver's pool, which
// keeps it too. Ours are calls of that pool, and what this library counts.
func warm(bytes int64, least float64) *comparison {
	return onDevice("cuMemAllocAsync", bytes, least, func(m *measure.Machine) (func() error, func() error, error) {
		p, err := newPool(m)
		if err != nil {
			return nil, nil, err
		}
		return func() error { return p.allocateAndFree(bytes) }, p.end, nil
	})
}

// waiting compares it with calls of the driver that keep nothing, and wait for the GPU.
func waiting(bytes int64, least float64) *comparison {
	return onDevice("cuMemAlloc", bytes, least, func(m *measure.Machine) (func() error, func() error, error) {
		return byDriver(bytes, m.Context.NewMemory, m.Context.FreeMemory), func() error { return nil }, nil
	})
}

// onDevice compares an allocation of device memory and its free with what begin returns.
func onDevice(beside string, bytes int64, least float64, begin func(*measure.Machine) (driver, end func() error, err error)) *comparison {
	return &comparison{
		name: "device memory beside " + beside + ", " + named(bytes), count: repeats,
		ours: []string{oursNow}, least: map[string]float64{oursNow: least},
		begin: func(m *measure.Machine) (*sides, error) {
			driver, end, err := begin(m)
			if err != nil {
				return nil, err
			}
			s, err := m.GPU.NewStream()
			if err != nil {
				return nil, errors.Join(err, end())
			}
			return &sides{
				driver: repeated(repeats, driver),
				ours:   ours(repeated(repeats, func() error { return allocateAndFree(m.GPU, bytes, s) })),
				end:    func() error { return errors.Join(s.Synchronize(context.Background()), s.Close(), end()) },
			}, nil
		},
	}
}

// first compares an allocation of device memory for which the driver has none yet.
func first(bytes int64) *comparison {
	return &comparison{
		name: "device memory beside cuMemAllocAsync, the first " + named(bytes), ours: []string{oursNow},
		begin: func(m *measure.Machine) (*sides, error) {
			p, err := newPool(m)
			if err != nil {
				return nil, err
			}
			return &sides{
				driver: func() (func(), error) {
					at, err := m.Context.NewPoolMemory(p.pool, bytes, m.Stream)
					if err != nil {
						return nil, err
					}
					return func() { _ = errors.Join(m.Context.FreePoolMemory(at, m.Stream), p.trim()) }, nil
				},
				ours: ours(func() (func(), error) {
					memory, err := m.GPU.Allocate(context.Background(), bytes, nil)
					if err != nil {
						return nil, err
					}
					return func() { _ = errors.Join(memory.FreeAfter(nil), m.GPU.Trim(context.Background())) }, nil
				}),
				end: p.end,
			}, m.GPU.Trim(context.Background())
		},
	}
}

// kept compares memory of a kind, of which ours is kept when it is freed, with calls of the driver that do not keep it.
func kept(kind, beside string, bytes int64, of func(*measure.Machine) *cudaalloc.Device, driver func(*cuda.Context) func() error) *comparison {
	return &comparison{
		name: fmt.Sprintf("%s memory beside %s, %s", kind, beside, named(bytes)), count: repeats,
		ours: []string{oursNow}, least: map[string]float64{oursNow: 1},
		begin: func(m *measure.Machine) (*sides, error) {
			return &sides{
				driver: repeated(repeats, driver(m.Context)),
				ours:   ours(repeated(repeats, func() error { return allocateAndFree(of(m), bytes, nil) })),
				end:    func() error { return m.GPU.Trim(context.Background()) },
			}, nil
		},
	}
}

// byDriver allocates and frees.
func byDriver(bytes int64, allocate func(int64) (device.Ptr, error), free func(device.Ptr) error) func() error {
	return func() error {
		at, err := allocate(bytes)
		if err != nil {
			return err
		}
		return free(at)
	}
}

// allocators compares the memory of all kinds.
func allocators(bytes int64) []*comparison {
	return []*comparison{
		warm(bytes, leastWarm),
		waiting(bytes, 1),
		kept("pinned", "cuMemAllocHost", bytes, func(m *measure.Machine) *cudaalloc.Device { return m.GPU.Pinned() },
			func(c *cuda.Context) func() error { return byDriver(bytes, c.NewHost, c.FreeHost) }),
		kept("managed", "cuMemAllocManaged", bytes, func(m *measure.Machine) *cudaalloc.Device { return m.GPU.Managed() },
			func(c *cuda.Context) func() error { return byDriver(bytes, c.NewManaged, c.FreeMemory) }),
		first(bytes),
		shareable(bytes),
	}
}

// shareable compares memory that neither side keeps. Ours is freed in the background: the row has the time until it is.
func shareable(bytes int64) *comparison {
	return &comparison{
		name: "shareable memory beside cuMemAlloc, " + named(bytes), ours: []string{oursNow},
		begin: func(m *measure.Machine) (*sides, error) {
			return &sides{
				driver: repeated(1, byDriver(bytes, m.Context.NewMemory, m.Context.FreeMemory)),
				ours: ours(repeated(1, func() error {
					return errors.Join(allocateAndFree(m.GPU.Shareable(), bytes, nil), m.GPU.Flush(context.Background()))
				})),
				end: func() error { return nil },
			}, nil
		},
	}
}

func ours(call measure.Call) map[string]measure.Call { return map[string]measure.Call{oursNow: call} }

// allocateAndFree allocates memory, and frees it, in stream order unless s is nil.
func allocateAndFree(dev *cudaalloc.Device, bytes int64, s device.Stream) error {
	memory, err := dev.Allocate(context.Background(), bytes, s)
	if err != nil {
		return err
	}
	if s == nil {
		return memory.FreeAfter(nil)
	}
	return memory.Free(s)
}

// pool is one of the driver's, which keeps freed memory as ours does.
type pool struct {
	*measure.Machine
	pool cuda.Pool
}

func newPool(m *measure.Machine) (*pool, error) {
	p, err := m.Context.NewPool()
	if err != nil {
		return nil, err
	}
	return &pool{m, p}, m.Context.SetReleaseThreshold(p, math.MaxInt64)
}

func (p *pool) allocateAndFree(bytes int64) error {
	at, err := p.Context.NewPoolMemory(p.pool, bytes, p.Stream)
	if err != nil {
		return err
	}
	return p.Context.FreePoolMemory(at, p.Stream)
}

// trim gives the memory back that the pool keeps.
func (p *pool) trim() error {
	return errors.Join(p.Context.SynchronizeStream(p.Stream), p.Context.TrimPool(p.pool))
}

func (p *pool) end() error { return errors.Join(p.trim(), p.Context.FreePool(p.pool)) }
