// Package cudasim is a CUDA driver for machines without a GPU: a libcuda.so.1
// that implements the memory, stream and event part of the driver API over host
// memory, and makes the usual bugs fail. Device memory faults when the host
// touches it, queued work runs asynchronously, fresh memory holds garbage,
// contexts and handles are checked, and leaks are reported. It runs no kernels.
//
// In a Go test, [Load] gives a machine of its own:
//
//	sim := cudasim.Load(t, cudasim.Options{Devices: 2})
//	gpu := openDriver(sim.Path()) // the code under test loads the driver from there
//	...
//	sim.Calls("cuMemAlloc")
//
// The test fails at its end if anything leaked. Package cudasimtest does the same for programs that use
// memory/cudaalloc, which need no path. Any other program runs with the library that
// [Build] compiles, configured by the environment variable CUDASIM, whose value [Options.String]
// returns. README.md describes the simulator and its differences from a GPU.
//
// The simulator needs Linux; this package also needs cgo and a C compiler.
package cudasim

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/arrowdevice/arrowdevice/cudasim/internal/ledger"
)

// Options describes a machine. The zero value has one device of 16 GiB and a driver with every
// feature of the simulator.
type Options struct {
	Devices   int  // at most 16; 0 means 1
	NoDevices bool // cuInit returns CUDA_ERROR_NO_DEVICE

	Delay  time.Duration // how long each queued operation waits before it runs
	Random bool          // each delay is random, up to twice Delay: streams overtake each other
	Lazy   bool          // work runs only when the host waits for it or queries it
	Seed   uint64        // of all random choices; 0 means 1

	// PageableAsync queues copies from and to pageable memory like all others, so that the source
	// is read late. Drivers usually read it before the call returns; programs must not rely on
	// that.
	PageableAsync bool

	// PageableStrict orders the host after a synchronous copy from pageable memory
	// only as far as the manual promises: the source has been read, the data may
	// not have arrived.
	PageableStrict bool

	NoRace bool // do not check for unordered accesses
	// Stacks has violations and leaks say where their calls were made: the call of this module and its caller, or
	// the place in a program in C.
	Stacks bool
	// Threads has each thread of the host know only what it has waited for itself, and what it is told by
	// cudasim_host_signal and cudasim_host_wait. It is for programs in C: goroutines move between threads.
	Threads bool

	Memory     int64 // bytes of each device; 0 means 16 GiB
	HostMemory int64 // bytes that can be page-locked; 0 means 16 GiB
	Version    int   // the result of cuDriverGetVersion; 0 means 12040. See [Options.Build]

	NoPools   bool // no stream-ordered allocation
	NoManaged bool // no managed memory
	// NoConcurrentManaged removes concurrent managed access from all devices, as on Windows: the
	// host must not touch managed memory while its device works.
	NoConcurrentManaged bool
	// Coherent is the number of devices, the first ones, that use the page tables of the host, as the GPU of
	// Grace Hopper does: their work accesses all memory of the host.
	Coherent           int
	NoPeer             bool // devices cannot access each other's memory
	NoReadOnlyRegister bool // memory that is mapped read-only cannot be registered
	NoPoison           bool // do not fill fresh and freed memory with garbage

	// StablePrimary gives a primary context the same handle each time that it is activated, as
	// drivers do. Without it, using a handle from before the last release is an error.
	StablePrimary bool

	// ReportPath is the file that the report is written to when the process exits; "-" is standard
	// error, which gets a report only if there are leaks or violations. A Go program calls
	// [Sim.WriteReport], because its exit does not run C's atexit handlers.
	ReportPath string

	// Missing lists exported functions that the library lacks; see [Build]. String does not contain
	// them.
	Missing []string
}

// String returns the value of the environment variable CUDASIM that selects o.
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
	set(o.Threads, "threads", 1)
	set(o.Memory != 0, "memory", o.Memory)
	set(o.HostMemory != 0, "host_memory", o.HostMemory)
	set(o.Version != 0, "version", o.Version)
	set(o.NoPools, "pools", 0)
	set(o.NoManaged, "managed", 0)
	set(o.NoConcurrentManaged, "concurrent_managed_access", 0)
	set(o.Coherent != 0, "coherent", o.Coherent)
	set(o.NoPeer, "peer", 0)
	set(o.NoReadOnlyRegister, "read_only_register", 0)
	set(o.NoPoison, "poison", 0)
	set(o.StablePrimary, "primary", "stable")
	set(o.ReportPath != "", "report", o.ReportPath)
	return strings.Join(pairs, ",")
}

// Sim controls one machine, that is one loaded copy of the library. Its methods, except Allow, may
// be called from any goroutine.
type Sim struct {
	path    string
	lib     loaded
	allowed []string
}

// Load returns a machine of t's own, separate from all other machines of the process. On systems other than
// Linux it skips the test; on Linux the test fails if the library cannot be built. When the test ends, after the functions that it registered
// with t.Cleanup later, Load calls [Sim.NoLeaks] and [Sim.ShutDown].
//
// The library stays loaded until the process exits, because other code may hold its function
// pointers.
func Load(t testing.TB, o Options) *Sim {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skipf("cudasim: the simulated CUDA driver runs on Linux only, and this is %s", runtime.GOOS)
	}
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
	// The loader treats two names of one file as the same library, hence a copy. The file must
	// stay: code that loads the driver by s.Path() has to find this copy.
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

// Open returns a Sim for the library at path, which other code of this process has loaded or will
// load as its driver. It configures nothing: the options come from the environment variable
// CUDASIM.
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

// Path returns the file of the library, which the code under test must load to use this machine.
func (s *Sim) Path() string { return s.path }

// Allow excludes objects that these functions created from the leaks of [Sim.NoLeaks], for objects
// that live as long as the process:
//
//	sim.Allow("cuDevicePrimaryCtxRetain", "cuEventCreate")
func (s *Sim) Allow(functions ...string) { s.allowed = append(s.allowed, functions...) }

// NoLeaks fails the test, with a list, if there are violations, or live objects that [Sim.Allow] does
// not exclude. What libraries keep in caches, Report.Kept, is no leak.
func (s *Sim) NoLeaks(t testing.TB) {
	t.Helper()
	s.Drain()
	r := s.Report()
	leaks := slices.DeleteFunc(r.Leaks, func(leak string) bool {
		function, _, _ := strings.Cut(leak, ":")
		return slices.Contains(s.allowed, function)
	})
	if len(r.Violations) > 0 {
		t.Errorf("cudasim: %d rules violated:%s", len(r.Violations), paragraphs(r.Violations))
	}
	if len(leaks) > 0 {
		t.Errorf("cudasim: %d leaked:\n\t%s", len(leaks), strings.Join(ledger.Summary(leaks), "\n\t"))
	}
}

// paragraphs is a text with a paragraph for each violation. What it says of streams and callers are lines
// of their own.
func paragraphs(violations []string) string {
	var text strings.Builder
	for _, v := range violations {
		text.WriteString("\n\n\t" + strings.ReplaceAll(v, "; ", ";\n\t\t"))
	}
	return text.String()
}
