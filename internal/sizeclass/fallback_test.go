package sizeclass

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// withFallback is an allocator over a source, and what it takes memory from where that has none.
func withFallback(t *testing.T, src Source, limit int64) *Allocator {
	plain := memory.NewCheckedAllocator(memory.DefaultAllocator)
	t.Cleanup(func() {
		plain.AssertSize(t, 0)
		assert.Zero(t, Fallbacks())
	})
	return NewFallbackAllocator(New(src, Limits{Total: limit}), plain)
}

// Allocations that the source refuses come from the fallback too, and the source is not called
// again for each allocation.
func TestFallbackOfWhatTheSourceRefuses(t *testing.T) {
	src := newCPU()
	src.refuse = errors.New("no pages")
	a := withFallback(t, src, 0)
	b := a.Allocate(4 << 20)
	require.Len(t, b, 4<<20)
	assert.True(t, allZero(b))
	src.refuse = nil
	more := a.Allocate(8 << 20)
	assert.Zero(t, src.made)
	_, use := a.Stats()
	assert.Equal(t, Use{Live: 12 << 20, Peak: 12 << 20, Held: 12 << 20, Allocations: 2, Total: 2}, use)
	a.Free(more)
	a.Free(b[:10])
	_, use = a.Stats()
	assert.Equal(t, Use{Peak: 12 << 20, Total: 2}, use)

	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := a.TryAllocate(ctx, 100)
	assert.ErrorIs(t, err, context.Canceled)
	_, err = a.TryAllocate(context.Background(), -1)
	assert.Error(t, err, "no memory has that size")
	assert.Panics(t, func() { a.Free(make([]byte, 10)) }, "not this allocator's")
}

// A Reallocate moves from the source to the fallback and back, with the contents.
func TestReallocateBetweenBoth(t *testing.T) {
	a := withFallback(t, newCPU(), 64<<10)
	live := func() int64 { _, use := a.Stats(); return use.Live }
	b := a.Allocate(32 << 10)
	copy(b, bytes.Repeat([]byte{7}, len(b)))
	for _, row := range []struct {
		size, kept int
		live       int64 // of the fallback
	}{
		{32 << 10, 32 << 10, 0},
		{100 << 10, 32 << 10, 100 << 10},
		{200 << 10, 32 << 10, 200 << 10},
		{150 << 10, 32 << 10, 200 << 10}, // shrunk where it is
		{10 << 10, 10 << 10, 0},
	} {
		b = a.Reallocate(row.size, b)
		require.Len(t, b, row.size)
		assert.Equal(t, row.kept, bytes.Count(b, []byte{7}))
		assert.True(t, allZero(b[row.kept:]))
		assert.Equal(t, row.live, live())
		assert.Equal(t, row.live > 0, IsFallback(address(b)))
	}
	a.Free(b)
	use, _ := a.Stats()
	assert.Zero(t, use.Live)
}

// Many goroutines that allocate, move and free keep both counts right.
func TestFallbackOnManyGoroutines(t *testing.T) {
	a := withFallback(t, newCPU(), 256<<10)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 100 {
				b := a.Allocate(1 + (i*7919+g*104729)%(80<<10))
				value := byte(g + 1)
				for j := range b {
					b[j] = value
				}
				grown := a.Reallocate(2*len(b), b)
				assert.Equal(t, len(grown)/2, bytes.Count(grown, []byte{value}))
				a.Free(grown)
			}
		})
	}
	wg.Wait()
	use, fallback := a.Stats()
	assert.Positive(t, fallback.Total)
	assert.Zero(t, fallback.Live)
	assert.Zero(t, use.Live)
}
