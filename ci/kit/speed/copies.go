package main

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/internal/hostcopy"
	"github.com/arrowdevice/arrowdevice/internal/measure"
)

const mib = 1 << 20

// shape is a batch of columns of the same size.
type shape struct {
	columns, column int64
}

func (s shape) bytes() int64 { return s.columns * s.column }

func (s shape) String() string {
	if s.columns == 1 {
		return fmt.Sprintf("%d MiB", s.column/mib)
	}
	return fmt.Sprintf("%d columns of %d KiB", s.columns, s.column>>10)
}

// Names of rows of copies.
const (
	oursNow    = "ours"
	registered = "registered for the copy"
)

// goroutines are how many copy through staging memory at most, and no more than GOMAXPROCS.
var goroutines = []int{1, 2, 4, 8}

// pieces are the sizes of copies of plain memory by the driver, one after the other.
var pieces = []int64{4 * mib, 16 * mib}

func stagedBy(n int) string       { return fmt.Sprintf("staged by %d", n) }
func inPieces(bytes int64) string { return fmt.Sprintf("pieces of %d MiB by the driver", bytes/mib) }

// pinned compares copies of pinned memory with one of the driver's.
func pinned(s shape, toDevice bool, least float64) *comparison {
	return copies("pinned memory "+direction(toDevice), s, []string{oursNow}, least, func(b *measure.Buffers) *sides {
		ours := b.ToHost(b.Pinned)
		if toDevice {
			ours = b.ToDevice(b.RecLocked)
		}
		return &sides{driver: b.ByDriver(b.Locked, toDevice, b.Size), ours: map[string]measure.Call{oursNow: ours}}
	})
}

// plain compares copies of plain memory, by every strategy, with cuMemcpy.
func plain(s shape, toDevice bool, least float64) *comparison {
	name := "plain memory " + direction(toDevice)
	return copies(name, s, strategies(), least, func(b *measure.Buffers) *sides {
		ours, host := b.ToHost(&b.Used), b.Used.AllocateUninitialized(int(b.Size))
		if toDevice {
			ours, host = b.ToDevice(b.Record), b.Plain
		}
		return &sides{driver: b.Now(host, toDevice), ours: withStrategies(b, ours, func() []byte { return host }, toDevice)}
	})
}

// fresh compares copies to memory whose pages the system has not provided yet.
func fresh(s shape, least float64) *comparison {
	return copies("plain memory to the host, fresh", s, strategies(), least, func(b *measure.Buffers) *sides {
		host := func() []byte { return slices.Grow([]byte(nil), int(b.Size))[:b.Size] }
		all := withStrategies(b, b.ToHost(memory.NewGoAllocator()), host, false)
		for name, call := range all {
			all[name] = givenBack(call)
		}
		return &sides{driver: givenBack(func() (func(), error) { return b.Now(host(), false)() }), ours: all}
	})
}

// strategies are the names of the rows of plain memory.
func strategies() (names []string) {
	names = []string{oursNow}
	for _, n := range goroutines {
		names = append(names, stagedBy(n))
	}
	for _, piece := range pieces {
		names = append(names, inPieces(piece))
	}
	return append(names, registered)
}

// withStrategies are the calls of strategies; host returns memory of the size of a copy.
func withStrategies(b *measure.Buffers, ours measure.Call, host func() []byte, toDevice bool) map[string]measure.Call {
	all := map[string]measure.Call{
		oursNow: ours,
		registered: func() (func(), error) {
			bytes := host()
			if err := b.Context.Register(measure.Pointer(bytes), b.Size, false); err != nil {
				return nil, err
			}
			_, err := b.ByDriver(bytes, toDevice, b.Size)()
			return nil, errors.Join(err, b.Context.Unregister(measure.Pointer(bytes)))
		},
	}
	for _, n := range goroutines {
		all[stagedBy(n)] = func() (func(), error) {
			defer hostcopy.SetMost(hostcopy.SetMost(n))
			return ours()
		}
	}
	for _, piece := range pieces {
		all[inPieces(piece)] = func() (func(), error) { return b.ByDriver(host(), toDevice, piece)() }
	}
	return all
}

// givenBack is a call after which the memory of Go's heap that it used is the system's.
func givenBack(call measure.Call) measure.Call {
	return func() (func(), error) {
		done, err := call()
		return func() {
			if done != nil {
				done()
			}
			debug.FreeOSMemory()
		}, err
	}
}

// copies is a comparison of copies, of which ours are to have so much of the driver's speed; 0: nothing is promised.
func copies(name string, s shape, ours []string, least float64, calls func(*measure.Buffers) *sides) *comparison {
	c := &comparison{name: fmt.Sprintf("%s, %s", name, s), bytes: s.bytes(), ours: ours}
	if least > 0 {
		c.least = map[string]float64{oursNow: least}
	}
	c.begin = func(m *measure.Machine) (*sides, error) {
		b, err := m.Allocate(s.bytes(), s.columns)
		if err != nil {
			return nil, err
		}
		both := calls(b)
		both.end = b.Free
		return both, nil
	}
	return c
}

func direction(toDevice bool) string {
	if toDevice {
		return "to the device"
	}
	return "to the host"
}
