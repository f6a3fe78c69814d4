package cudaalloc

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cuda"
	"github.com/arrowdevice/arrowdevice/internal/sizeclass"
)

func init() {
	register := func(t device.Type, space func(*Device) *Device) {
		device.Register(t, func(ordinal int64) (device.Device, error) {
			// Some producers number no device for page-locked and managed memory.
			if ordinal == device.NoOrdinal && t != device.CUDA {
				ordinal = 0
			}
			d, err := Open(ordinal)
			if err != nil {
				return nil, err
			}
			return space(d), nil
		})
	}
	register(device.CUDA, func(d *Device) *Device { return d })
	register(device.CUDAHost, (*Device).Pinned)
	register(device.CUDAManaged, (*Device).Managed)
	device.RegisterUUIDs(device.CUDA, uuids)
}

// Device is one kind of memory of one GPU: its own (device.CUDA), page-locked host
// memory (device.CUDAHost) or managed memory (device.CUDAManaged). The three share
// streams, events and statistics. It is a device.Device.
type Device struct {
	*gpu
	kind device.Type
	// apart reports whether each allocation is one of the driver; see [Device.Shareable].
	apart bool
}

var _ interface {
	device.Device
	device.Stager
	device.Memsetter
	device.CopyStreamer
	device.Prober
	device.Sharer
	device.HostRegistrar
} = (*Device)(nil)

// gpu is the state that the three kinds of memory share.
type gpu struct {
	platform *platform
	ctx      *cuda.Context
	name     string
	pool     cuda.Pool // 0: no stream-ordered allocation
	// concurrent reports whether the host may touch managed memory while the GPU works.
	concurrent bool
	// background is the stream on which memory is freed that no work uses any more. It
	// never waits for anything.
	background uintptr

	own, host, managed, shareable *Device

	usage      [purposes]usage
	opened     usage                      // memory of other processes
	registered usage                      // see [Device.RegisterMemory]
	caches     [purposes]*sizeclass.Cache // nil: from the pool
	trims      trims
	limits     limits
	trimmer    trimmer
	staging    staging
	streams    streamList
	events     eventList
	deferred   deferred
	// synchronizing is held while the context is synchronised; it has room for one.
	synchronizing chan struct{}
	holds         atomic.Int64 // of HoldSynchronization
	// reclaiming is held by the allocation that reclaims memory; it has room for one.
	reclaiming chan struct{}
	panics     atomic.Int64 // of callers' functions
}

// platform has the open devices of one driver.
type platform struct {
	driver *cuda.Driver
	locked ranges // page-locked for all its GPUs
	mu     sync.Mutex
	gpus   map[int64]*opening
	prober prober
	owners sync.Map // int32 -> *gpu: those that are open, by ordinal
	// several reports whether the driver has more than one GPU: only then can memory be
	// another one's.
	several atomic.Bool
}

type opening struct {
	mu  sync.Mutex
	gpu *gpu
}

var platforms = struct {
	sync.Mutex
	byDriver map[*cuda.Driver]*platform
}{byDriver: map[*cuda.Driver]*platform{}}

// Option configures [Open] and [Devices].
type Option func(*options)

type options struct{ driver string }

// WithDriver loads the driver from path instead of libcuda.so.1 (nvcuda.dll on
// Windows) or the path in the environment variable CDEVICE_CUDA_DRIVER. Devices
// of different drivers are different devices; device.Open knows those of the
// default driver.
func WithDriver(path string) Option {
	return func(o *options) { o.driver = path }
}

func openPlatform(opts []Option) (*platform, error) {
	var o options
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	driver, err := cuda.Open(o.driver)
	if err != nil {
		return nil, err
	}
	platforms.Lock()
	defer platforms.Unlock()
	p, ok := platforms.byDriver[driver]
	if !ok {
		p = &platform{driver: driver, gpus: map[int64]*opening{}}
		platforms.byDriver[driver] = p
	}
	return p, nil
}

// Open returns the GPU with this ordinal, retaining its primary context at the
// first call. There is one Device per GPU and driver; it is never closed.
//
// After another part of the program has reset the primary context
// (cuDevicePrimaryCtxReset, cudaDeviceReset), Open returns a new Device. The previous
// Device and its memory, streams and events ended with the reset: each use of them
// is an error.
//
// The error wraps device.ErrNotSupported where there is no driver, a driver that is
// too old, or no such GPU.
func Open(ordinal int64, opts ...Option) (*Device, error) {
	p, err := openPlatform(opts)
	if err != nil {
		return nil, err
	}
	count, err := p.driver.DeviceCount()
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
	if before != nil && !before.gone() {
		return before.own, nil
	}
	opened, err := openGPU(p, int(ordinal))
	if err != nil {
		return nil, err
	}
	o.gpu = opened
	if before != nil {
		before.abandon(opened)
	}
	return opened.own, nil
}

// gone reports whether the context was reset. If the driver fails, it reports false.
func (g *gpu) gone() bool {
	gone, err := g.ctx.Gone(g.background)
	return err == nil && gone
}

// abandon gives back the objects of a GPU that survive a reset: the reference to the primary
// context, and the pool, which belongs to the device. An object that the driver refuses twice is
// lost, and nothing else with it. No range counts as page-locked any more, which is slower for
// memory that other GPUs have page-locked, and never wrong.
func (g *gpu) abandon(now *gpu) {
	g.platform.locked.clear()
	steps := []func() error{g.ctx.Release}
	if g.pool != 0 {
		steps = append(steps, func() error { return now.ctx.FreePool(g.pool) })
	}
	for _, step := range steps {
		if step() != nil {
			_ = step()
		}
	}
}

// Gone reports whether the primary context was reset since the GPU was opened: then
// Open returns another Device. It asks the driver.
func (d *Device) Gone() bool { return d.gpu.gone() }

func openGPU(p *platform, ordinal int) (*gpu, error) {
	dev, err := p.driver.Device(ordinal)
	if err != nil {
		return nil, err
	}
	name, err := dev.Name()
	if err != nil {
		return nil, err
	}
	pools, err := dev.Attribute(cuda.MemoryPoolsSupported)
	if err != nil && !errors.Is(err, cuda.InvalidValue) { // drivers that do not know the attribute
		return nil, err
	}
	concurrent, err := dev.Attribute(cuda.ConcurrentManagedAccess)
	if err != nil && !errors.Is(err, cuda.InvalidValue) {
		return nil, err
	}
	ctx, err := dev.Context()
	if err != nil {
		return nil, err
	}
	g := &gpu{
		platform: p, ctx: ctx, name: name, concurrent: concurrent != 0,
		synchronizing: make(chan struct{}, 1), reclaiming: make(chan struct{}, 1),
		trims: trims{turn: make(chan struct{}, 1)},
	}
	if g.background, err = ctx.NewStream(0); err == nil && pools != 0 {
		g.pool, err = ctx.NewPool()
		if errors.Is(err, device.ErrNotSupported) {
			err = nil
		}
	}
	if err != nil {
		return nil, errors.Join(err, g.close())
	}
	g.own = &Device{gpu: g, kind: device.CUDA}
	g.host = &Device{gpu: g, kind: device.CUDAHost}
	g.managed = &Device{gpu: g, kind: device.CUDAManaged}
	g.shareable = &Device{gpu: g, kind: device.CUDA, apart: true}
	for purpose, d := range [purposes]*Device{onDevice: g.own, onHost: g.host, inManaged: g.managed} {
		if purpose != onDevice || g.pool == 0 {
			g.caches[purpose] = sizeclass.New(d.source(), sizeclass.Limits{})
		}
	}
	for _, own := range []uintptr{ctx.Handle(), g.background, uintptr(g.pool)} {
		ctx.Keep(device.Ptr(own), 0)
	}
	if err := g.own.SetLimits(DefaultLimits()); err != nil {
		return nil, errors.Join(err, g.close())
	}
	p.prober.opened(g)
	p.owners.Store(int32(ordinal), g)
	return g, nil
}

// close undoes openGPU, trying each step twice: a driver that fails once must not keep a context
// alive. A GPU that was opened is closed in tests only: handles of it may be anywhere in the
// process.
func (g *gpu) close() error {
	g.platform.prober.ended(g)
	g.platform.owners.CompareAndDelete(int32(g.ctx.Ordinal()), g)
	var steps []func() error
	if g.pool != 0 {
		steps = append(steps, func() error { return g.ctx.FreePool(g.pool) })
	}
	if g.background != 0 {
		steps = append(steps, func() error { return g.ctx.FreeStream(g.background) })
	}
	steps = append(steps, g.ctx.Release)
	var all error
	for _, step := range steps {
		if step() != nil {
			all = errors.Join(all, step())
		}
	}
	return all
}

// Pinned returns the device for the page-locked host memory of the GPU: device.CUDAHost, which
// the GPU copies from and to at the speed of the bus, and the CPU reads and writes.
func (d *Device) Pinned() *Device { return d.gpu.host }

// Managed returns the device for the managed memory of the GPU: device.CUDAManaged, which the
// driver moves between the GPU and the host as they touch it.
func (d *Device) Managed() *Device { return d.gpu.managed }

// Own returns the device for the memory on the GPU itself: device.CUDA.
func (d *Device) Own() *Device { return d.gpu.own }

// MemoryKind returns the kind of memory that Allocate returns. It tells the devices of one GPU apart, of which
// [Device.Own] and [Device.Shareable] have the same ID.
func (d *Device) MemoryKind() device.MemoryKind {
	switch {
	case d.apart:
		return device.ShareableMemory
	case d.kind == device.CUDAHost:
		return device.PinnedMemory
	case d.kind == device.CUDAManaged:
		return device.ManagedMemory
	}
	return device.OwnMemory
}

// WithMemory is [Device.Own], [Device.Shareable], [Device.Pinned] or [Device.Managed].
func (d *Device) WithMemory(kind device.MemoryKind) (device.Device, error) {
	switch kind {
	case device.OwnMemory:
		return d.gpu.own, nil
	case device.ShareableMemory:
		return d.gpu.shareable, nil
	case device.PinnedMemory:
		return d.gpu.host, nil
	case device.ManagedMemory:
		return d.gpu.managed, nil
	}
	return nil, fmt.Errorf("cuda: %s has no memory of kind %s: %w", d.ID(), kind, device.ErrNotSupported)
}

// ID returns the kind of memory and the ordinal of the GPU.
func (d *Device) ID() device.ID {
	return device.ID{Type: d.kind, Ordinal: int64(d.ctx.Ordinal())}
}

// Name returns the name of the GPU.
func (d *Device) Name() string { return d.name }

// CPUAccessible reports true for page-locked memory, and for managed memory where the GPU has
// concurrent managed access (CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS). On other GPUs, and on
// Windows, the process is ended if the host touches any managed memory while the GPU runs any
// work.
func (d *Device) CPUAccessible() bool {
	return d.kind.CPUAccessible() && (d.kind != device.CUDAManaged || d.concurrent)
}

// Context returns the CUcontext of the GPU, its primary context, for other libraries of
// the process. It is valid until the primary context is reset; see [Device.Gone].
func (d *Device) Context() uintptr { return d.ctx.Handle() }

// MemoryInfo returns the free and the total memory of the GPU in bytes. Memory that the pool of
// this package keeps counts as used; see [Device.Trim].
func (d *Device) MemoryInfo() (free, total int64, err error) { return d.ctx.MemoryInfo() }
