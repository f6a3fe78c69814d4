package soak

import (
	"math/rand/v2"
	"sync"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
)

// account is an allocator that tracks its allocations. Builders of arrow-go need one where
// memory may run out: those of views forget their blocks when they are released, and so
// lose them if the allocator's panic ends them before there is an array.
type account struct {
	memory.Allocator
	mu   sync.Mutex
	lent map[*byte][]byte
}

func (a *account) Allocate(size int) []byte { return a.add(a.Allocator.Allocate(size)) }

// Reallocate keeps b on the account if the allocator panics.
func (a *account) Reallocate(size int, b []byte) []byte {
	moved := a.Allocator.Reallocate(size, b)
	a.remove(b)
	return a.add(moved)
}

// Free takes b off the account first: another goroutine may get the same memory.
func (a *account) Free(b []byte) {
	a.remove(b)
	a.Allocator.Free(b)
}

func (a *account) add(b []byte) []byte {
	if cap(b) > 0 {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.lent[unsafe.SliceData(b)] = b
	}
	return b
}

func (a *account) remove(b []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.lent, unsafe.SliceData(b))
}

// settle frees all memory that is in use.
func (a *account) settle() {
	for _, b := range a.lent {
		a.Allocator.Free(b)
	}
}

// built calls build, which makes arrays in memory of mem. If it panics, it has released some of
// them, and the rest is freed.
func built[T any](mem memory.Allocator, build func(memory.Allocator) T) (made T) {
	a := &account{Allocator: mem, lent: map[*byte][]byte{}}
	done := false
	defer func() {
		if !done {
			a.settle()
		}
	}()
	made = build(a)
	done = true
	return made
}

// scarce is an allocator that panics once, after some calls.
type scarce struct {
	*memory.CheckedAllocator
	left int
}

func (s *scarce) use() {
	if s.left--; s.left == 0 {
		panic(noMemory{})
	}
}

func (s *scarce) Allocate(size int) []byte {
	s.use()
	return s.CheckedAllocator.Allocate(size)
}

func (s *scarce) Reallocate(size int, b []byte) []byte {
	s.use()
	return s.CheckedAllocator.Reallocate(size, b)
}

// A build that fails, at any of its allocations, releases all memory that it has allocated.
func TestABuildThatFailsGivesAllBack(t *testing.T) {
	each := func(name string, build func(memory.Allocator) arrow.Array) {
		for ended, n := false, 1; !ended; n++ {
			s := &scarce{memory.NewCheckedAllocator(memory.DefaultAllocator), n}
			w := &worker{crew: &crew{}}
			ended = !w.try(func() { built(s, build).Release() })
			assert.False(t, w.failed, name)
			assert.Zero(t, s.CurrentAlloc(), "%s: bytes lost at allocation %d", name, n)
		}
	}
	for _, typ := range columnTypes {
		each(typ.String(), func(mem memory.Allocator) arrow.Array {
			w := &worker{Rand: rand.New(rand.NewPCG(1, 2))}
			b := array.NewBuilder(mem, typ)
			defer b.Release()
			for range 4000 {
				w.appendTo(b, true)
			}
			return b.NewArray()
		})
	}
	for _, c := range everyCase {
		each(c.Name, func(mem memory.Allocator) arrow.Array {
			made, err := c.Array(mem, variants[0])
			assert.NoError(t, err)
			return made
		})
	}
}
