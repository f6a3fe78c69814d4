package metamorphic

import (
	"context"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

var background = context.Background()

// World is a configuration that programs run in. Their results are the same in all of them.
type World struct {
	Name string
	gpu  bool // the machine has simulated GPUs
	sim  cudasim.Options
	kind device.MemoryKind // of home
	two  bool              // other is memory of a second GPU; else pinned memory, or the GPU's where home is not
	// prefetch is the number of items that readers read ahead.
	prefetch int
	gogc     int // of the garbage collector while programs run; 0: as it is
	// upstream has arrow-go's package cdata at work, where operations are those of a package cdata.
	upstream bool
	// Differs says why something is seen in another way than in other worlds.
	Differs string
}

const delay = 100 * time.Microsecond

const notOnCPU = "the CPU cannot access the memory: HostView and what is like it must fail, and operations read a copy"

// Worlds are all worlds.
var Worlds = []World{
	{Name: "cpu"},
	{Name: "cpu, arrow-go's cdata", upstream: true, prefetch: 2},
	{Name: "cpu, GOGC=1", gogc: 1, prefetch: 2},
	{Name: "cpu, GOGC=off", gogc: -1},
	{Name: "pinned", gpu: true, kind: device.PinnedMemory, sim: cudasim.Options{Delay: delay}},
	{Name: "managed", gpu: true, kind: device.ManagedMemory, sim: cudasim.Options{Delay: delay, PageableAsync: true}, prefetch: 2},
	{Name: "gpu", gpu: true, Differs: notOnCPU},
	{Name: "gpu, delayed", gpu: true, sim: cudasim.Options{Delay: delay, PageableAsync: true}, prefetch: 2, Differs: notOnCPU},
	{Name: "gpu, random", gpu: true, two: true, sim: cudasim.Options{Delay: delay, PageableAsync: true, Random: true, Seed: 7, Devices: 3}, Differs: notOnCPU},
	{Name: "gpu, lazy", gpu: true, sim: cudasim.Options{Lazy: true, PageableAsync: true}, prefetch: 2, Differs: notOnCPU},
	{Name: "gpu, without pools", gpu: true, sim: cudasim.Options{Delay: delay / 2, NoPools: true, NoConcurrentManaged: true}, Differs: notOnCPU},
	{Name: "two gpus, GOGC=1", gpu: true, two: true, gogc: 1, sim: cudasim.Options{Random: true, Delay: delay, Devices: 2, NoPeer: true, PageableAsync: true}, prefetch: 2, Differs: notOnCPU},
}

// setting is a world that is open.
type setting struct {
	World
	machine    *cudasim.Sim        // nil without a GPU
	gpus       []*cudaalloc.Device // all of them
	home       device.Device
	other      device.Device
	mem        memory.Allocator      // of arrow-go, at home; Go's where home is memory of a GPU
	idle       cudasim.Live          // what an open GPU has
	allocators map[string]*allocator // by name, once they were used
	pace       *within.Pace          // of the machine that runs the tests
}

// open opens a world until the end of the test. pace is that of the machine.
func (w World) open(t testing.TB, pace *within.Pace) *setting {
	s := &setting{World: w, pace: pace, home: device.CPUDevice(), other: device.CPUDevice(), mem: memory.DefaultAllocator}
	s.upstream = s.upstream && !underCgocheck
	if !w.gpu {
		return s
	}
	o := w.sim
	o.Stacks = false
	s.machine = cudasim.Load(t, o)
	s.machine.Allow("cuDevicePrimaryCtxRetain", "cuMemPoolCreate", "cuStreamCreateWithPriority")
	driver := cudaalloc.WithDriver(s.machine.Path())
	for i := range max(1, o.Devices) {
		gpu, err := cudaalloc.Open(int64(i), driver)
		require.NoError(t, err)
		s.gpus = append(s.gpus, gpu)
	}
	s.places(t)
	s.trim()
	s.idle = s.machine.Report().Live
	return s
}

func (s *setting) places(t testing.TB) {
	gpu := s.gpus[0]
	s.home, s.other = gpu, gpu.Pinned()
	var err error
	switch s.kind {
	case device.PinnedMemory:
		s.home, s.other = gpu.Pinned(), gpu
		s.mem, err = hostpinned.NewAllocator(gpu)
	case device.ManagedMemory:
		s.home, s.other = gpu.Managed(), gpu
		s.mem, err = cudaalloc.NewManagedAllocator(gpu)
	}
	require.NoError(t, err)
	if s.two {
		s.other = s.gpus[1]
	}
}

// trim has the GPUs give back what they keep for later; work of one may keep memory of another.
func (s *setting) trim() {
	for range s.gpus {
		for _, gpu := range s.gpus {
			ctx, cancel := context.WithTimeout(background, 10*time.Second)
			_ = gpu.Trim(ctx)
			cancel()
		}
	}
}

// at returns the device of a place.
func (s *setting) at(p place) device.Device {
	switch p {
	case home:
		return s.home
	case other:
		return s.other
	}
	return device.CPUDevice()
}

// goMemory is memory of Go.
func (s *setting) goMemory() memory.Allocator { return memory.DefaultAllocator }
