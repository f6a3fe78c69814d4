// Package cudasim is a CUDA driver for machines without a GPU: a libcuda.so.1
// that implements the memory, stream and event part of the driver API over host
// memory, and makes the usual bugs fail. Device memory faults when the host
// touches it, queued work is really done later, fresh memory is garbage, contexts
// and handles are checked, and everything that is still live is reported. It
// runs no kernels.
//
// In a Go test, [Load] gives a machine of its own:
//
//	sim := cudasim.Load(t, cudasim.Options{Devices: 2})
//	gpu := openDriver(sim.Path()) // what is tested loads the driver from there
//	...
//	sim.Calls("cuMemAlloc")
//
// When the test ends, it fails if anything leaked. Any other program is run with
// the library that [Build] makes, and is configured by the environment variable
// CUDASIM, which [Options.String] writes. README.md says what the simulator does
// and where it departs from a GPU.
//
// The simulator needs Linux, and this package cgo and a C compiler.
package cudasim

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Options is a machine; the zero value is one of one device of 16 GiB with a
// driver that can do everything the simulator can.
type Options struct {
	Devices   int  // up to 16; 0 is one
	NoDevices bool // cuInit answers CUDA_ERROR_NO_DEVICE

	Delay  time.Duration // how long each queued operation lies before it is done
	Random bool          // up to twice Delay, drawn anew each time: streams overtake each other
	Lazy   bool          // nothing is done before the host waits for it or asks for it
	Seed   uint64        // of everything random; 0 is 1

	// PageableAsync queues copies from and to pageable memory like all others, so
	// that the source is read late. Drivers usually do not; programs must not rely
	// on that.
	PageableAsync bool

	// PageableStrict orders the host after a synchronous copy from pageable memory
	// only as far as the manual does: the source was read, the data may not have arrived.
	PageableStrict bool

	NoRace bool // accesses that are not ordered are not looked for
	Stacks bool // violations tell where their calls were made, for programs in C

	Memory     int64 // bytes of each device; 0 is 16 GiB
	HostMemory int64 // bytes that can be page-locked; 0 is 16 GiB
	Version    int   // what cuDriverGetVersion answers; 0 is 12040. See [Options.Build]

	NoPools   bool // no stream-ordered allocation
	NoManaged bool // no managed memory
	// NoConcurrentManaged is a driver whose devices have no concurrent managed access, as
	// on Windows: the host must not touch managed memory while its device works.
	NoConcurrentManaged bool
	NoPeer              bool // devices cannot access each other's memory
	NoPoison            bool // fresh and freed memory is left as it is

	// StablePrimary gives a primary context the same handle each time that it is
	// activated, as drivers do. Without it a handle from before the last release is
	// an error.
	StablePrimary bool

	// ReportPath is the file that the report is written to when the process exits;
	// "-" is standard error, and then only if something leaked or was violated. At
	// the end of a Go program C has no say: it calls [Sim.WriteReport].
	ReportPath string

	// Missing are exported functions that the library lacks; see [Build]. They are
	// no part of String.
	Missing []string
}

// String is the value of the environment variable CUDASIM that asks for o.
func (o Options) String() string {
	var pairs []string
	set := func(given bool, name string, value any) {
		if given {
			pairs = append(pairs, fmt.Sprint(name, "=", value))
		}
	}
	set(o.Devices != 0 && !o.NoDevices, "devices", o.Devices)
	set(o.NoDevices, "devices", 0)
	set(o.Delay != 0, "delay", int64((o.Delay+time.Microsecond-1)/time.Microsecond))
	set(o.Random, "schedule", "random")
	set(o.Lazy, "schedule", "lazy")
	set(o.Seed != 0, "seed", o.Seed)
	set(o.PageableAsync, "pageable_async", 1)
	set(o.PageableStrict, "pageable_strict", 1)
	set(o.NoRace, "race", 0)
	set(o.Stacks, "stacks", 1)
	set(o.Memory != 0, "memory", o.Memory)
	set(o.HostMemory != 0, "host_memory", o.HostMemory)
	set(o.Version != 0, "version", o.Version)
	set(o.NoPools, "pools", 0)
	set(o.NoManaged, "managed", 0)
	set(o.NoConcurrentManaged, "concurrent_managed_access", 0)
	set(o.NoPeer, "peer", 0)
	set(o.NoPoison, "poison", 0)
	set(o.StablePrimary, "primary", "stable")
	set(o.ReportPath != "", "report", o.ReportPath)
	return strings.Join(pairs, ",")
}

// Sim is the control of one machine: one loaded copy of the library. Its methods
// may be called from any goroutine, Allow apart.
type Sim struct {
	path    string
	lib     loaded
	allowed []string
}

// Load returns a machine of t's own, whatever other machines the process has.
// The test fails if the library cannot be built. When the test ends, and after
// all that it registered with t.Cleanup later, Load calls [Sim.NoLeaks] and
// [Sim.ShutDown].
//
// The library stays loaded until the process exits: others may have functions of it.
func Load(t testing.TB, o Options) *Sim {
	t.Helper()
	s, err := load(t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		t.Helper()
		s.NoLeaks(t)
		s.ShutDown()
	})
	return s
}

func load(dir string, o Options) (*Sim, error) {
	built, err := o.Build()
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(built)
	if err != nil {
		return nil, fmt.Errorf("cudasim: %w", err)
	}
	// The loader takes two names of one file for the same library, hence a copy. It
	// must stay: whoever loads the driver by s.Path() has to find this one.
	path := filepath.Join(dir, library)
	if err := os.WriteFile(path, content, 0o700); err != nil {
		return nil, fmt.Errorf("cudasim: %w", err)
	}
	s, err := Open(path)
	if err != nil {
		return nil, err
	}
	if err := s.configure(o.String()); err != nil {
		return nil, err
	}
	return s, nil
}

// Open returns the control of the library at path, which other code of this
// process has loaded or will load as its driver, and configures nothing: its
// options come from the environment variable CUDASIM.
func Open(path string) (*Sim, error) {
	lib, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("cudasim: %w", err)
	}
	s := &Sim{path: path, lib: lib}
	for _, name := range controls {
		if lib.symbol(name) == 0 {
			return nil, fmt.Errorf("cudasim: %s is not a simulated driver of this version: it has no %s", path, name)
		}
	}
	return s, nil
}

// Path is the file of the library: what the code under test must load to meet
// this machine.
func (s *Sim) Path() string { return s.path }

// Allow takes what these functions made out of what [Sim.NoLeaks] complains
// about, for things that live as long as the process does:
//
//	sim.Allow("cuDevicePrimaryCtxRetain", "cuEventCreate")
func (s *Sim) Allow(functions ...string) { s.allowed = append(s.allowed, functions...) }

// NoLeaks fails the test if anything is live that [Sim.Allow] does not allow, or
// if rules were violated, and says what.
func (s *Sim) NoLeaks(t testing.TB) {
	t.Helper()
	s.Drain()
	r := s.Report()
	leaks := slices.DeleteFunc(r.Leaks, func(leak string) bool {
		function, _, _ := strings.Cut(leak, ":")
		return slices.Contains(s.allowed, function)
	})
	if len(leaks) > 0 {
		t.Errorf("cudasim: %d leaked:\n\t%s", len(leaks), strings.Join(leaks, "\n\t"))
	}
	if len(r.Violations) > 0 {
		t.Errorf("cudasim: %d rules violated:\n\t%s", len(r.Violations), strings.Join(r.Violations, "\n\t"))
	}
}
