package sizeclass

import (
	"bytes"
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
)

var _ memory.Allocator = (*Allocator)(nil)

// cpu is a counting allocator whose memory holds garbage.
type cpu struct {
	Source
	mu         sync.Mutex
	live, made int
	bytes      int64
	refuse     error
}

func newCPU() *cpu { return &cpu{Source: Of(device.CPUDevice())} }

func (s *cpu) Allocate(ctx context.Context, size int64) (device.Ptr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		return 0, s.refuse
	}
	p, err := s.Source.Allocate(ctx, size)
	if err != nil {
		return 0, err
	}
	s.live++
	s.made++
	s.bytes += size
	return p, device.CPUDevice().(device.Memsetter).Memset(p, 0xdd, size, nil)
}

func (s *cpu) Free(p device.Ptr, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live--
	s.bytes -= size
	s.Source.Free(p, size)
}

func over(s Source, limit int64) *Allocator { return NewAllocator(New(s, Limits{Total: limit})) }

func allZero(b []byte) bool { return bytes.Count(b, []byte{0}) == len(b) }

func TestMemoryIsZeroedAlignedAndApart(t *testing.T) {
	src := newCPU()
	a := over(src, 0)
	var all [][]byte
	for round := range 3 {
		for _, size := range []int{1, 63, 64, 65, 1000, 4096, 1 << 16, 1<<20 - 1, 1 << 20, 1<<20 + 1, 5 << 20} {
			b := a.Allocate(size)
			require.Len(t, b, size)
			require.Equal(t, size, cap(b))
			require.Zero(t, uintptr(unsafe.Pointer(&b[0]))%64)
			require.True(t, allZero(b), "size %d", size)
			for i := range b {
				b[i] = byte(len(all))
			}
			all = append(all, b)
		}
		for i, b := range all {
			require.Equal(t, len(b), bytes.Count(b, []byte{byte(i)}), "round %d", round)
			a.Free(b)
		}
		all = nil
	}
	use, _ := a.Stats()
	assert.Zero(t, use.Live)
	assert.Zero(t, use.Allocations)
	a.Trim()
	assert.Zero(t, src.live)
}

func TestNoBytes(t *testing.T) {
	a := over(newCPU(), 0)
	b := a.Allocate(0)
	assert.NotNil(t, b)
	assert.Empty(t, b)
	a.Free(b)
	a.Free(nil)
	b = a.Reallocate(10, b)
	assert.Len(t, b, 10)
	b = a.Reallocate(0, b)
	assert.Empty(t, b)
	a.Free(b)
	use, _ := a.Stats()
	assert.Zero(t, use.Live)
	assert.Zero(t, use.Allocations)
}

func TestReallocateKeepsAndZeroes(t *testing.T) {
	a := over(newCPU(), 0)
	b := a.Allocate(10)
	for i := range b {
		b[i] = byte(i + 1)
	}
	for _, size := range []int{11, 60, 64, 65, 5000, 2 << 20, 100, 20} {
		before := append([]byte(nil), b...)
		b = a.Reallocate(size, b)
		require.Len(t, b, size)
		n := min(size, len(before))
		require.Equal(t, before[:n], b[:n])
		require.True(t, allZero(b[n:]), "size %d", size)
	}
	a.Free(b)
	use, fallback := a.Stats()
	assert.Positive(t, use.Peak)
	assert.Positive(t, use.Held)
	assert.Equal(t, Use{Peak: use.Peak, Held: use.Held, Cached: use.Held, Total: use.Total}, use)
	assert.Positive(t, use.Total)
	assert.Zero(t, fallback)
}

// Errors of the limit and of the source are those of the allocator.
func TestErrorsOfTheCache(t *testing.T) {
	src := newCPU()
	a := over(src, 8<<20)
	big := a.Allocate(4 << 20)
	err := panicOf(func() { a.Allocate(5 << 20) })
	assert.ErrorIs(t, err, ErrLimit)
	assert.EqualError(t, err, "allocate 5242880 bytes of cpu memory: the allocator's limit is reached: 4194304 bytes of 8388608 are held")
	var failed *Error
	require.ErrorAs(t, err, &failed)
	assert.Equal(t, 5<<20, failed.Size)
	a.Free(big)
	a.Trim()
	src.refuse = errors.New("no pages")
	assert.ErrorIs(t, panicOf(func() { a.Allocate(1 << 19) }), src.refuse)
	assert.Zero(t, src.live)
}

func TestForeignMemoryIsRefused(t *testing.T) {
	a := over(newCPU(), 0)
	b := a.Allocate(64)
	a.Free(b)
	const why = " bytes of cpu memory: freed twice, or never allocated here"
	assert.EqualError(t, panicOf(func() { a.Free(b) }), "free 64"+why)
	assert.EqualError(t, panicOf(func() { a.Free(make([]byte, 10)) }), "free 10"+why)
	assert.EqualError(t, panicOf(func() { a.Reallocate(20, make([]byte, 10)) }), "reallocate 10"+why)
	assert.ErrorContains(t, panicOf(func() { a.Allocate(-1) }), "allocate -1 bytes of cpu memory: ")
	assert.EqualError(t, &Error{Op: "allocate", Size: 3, Err: errors.New("why")}, "allocate 3 bytes of "+(&Error{}).Device.String()+" memory: why")
	for _, size := range []int{-1, math.MinInt, math.MaxInt} {
		assert.Error(t, panicOf(func() { a.Allocate(size) }))
		assert.Error(t, panicOf(func() { c := a.Allocate(8); defer a.Free(c); a.Reallocate(size, c) }))
	}
}

func panicOf(f func()) (err error) {
	defer func() {
		if e, ok := recover().(error); ok {
			err = e
		}
	}()
	f()
	return nil
}
