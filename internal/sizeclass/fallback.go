package sizeclass

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// Plain is a memory.Allocator of arrow-go, as far as a [Fallback] needs one.
type Plain interface {
	Allocate(size int) []byte
	Free(b []byte)
}

// Fallback gives memory of an ordinary allocator where a cache has none.
type Fallback struct {
	plain Plain

	mu      sync.Mutex
	use     Use
	refused atomic.Int64 // when the source last refused, in nanoseconds since start
}

// retryAfter is how long a source that refused is not called again: each call may wait for pending
// work.
const retryAfter = time.Second

var start = time.Now()

// NewFallbackAllocator is [NewAllocator] with a fallback for allocations that exceed the limit of the
// cache, or that its source refuses.
func NewFallbackAllocator(cache *Cache, plain Plain) *Allocator {
	a := NewAllocator(cache)
	a.fallback = &Fallback{plain: plain}
	a.fallback.refused.Store(-int64(retryAfter))
	return a
}

// Stats returns the memory that was allocated so far.
func (f *Fallback) Stats() Use {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.use
}

// take returns a block of the cache, or else memory of the fallback. It fails where ctx is
// done, and for sizes that no memory has.
func (f *Fallback) take(ctx context.Context, cache *Cache, size int) (allocation, error) {
	if _, err := classOf(int64(size)); err != nil {
		return allocation{}, err
	}
	if block, ok := f.block(ctx, cache, size); ok {
		return allocation{block: block}, nil
	}
	if err := ctx.Err(); err != nil {
		return allocation{}, err
	}
	return allocation{plain: f.allocate(size)}, nil
}

// block takes a block of the cache, if there is one. The source is not called again within retryAfter of a
// refusal.
func (f *Fallback) block(ctx context.Context, cache *Cache, size int) (Block, bool) {
	if int64(time.Since(start))-f.refused.Load() < int64(retryAfter) {
		return cache.TryTake(int64(size))
	}
	block, err := cache.Take(ctx, int64(size))
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrLimit) {
		f.refused.Store(int64(time.Since(start)))
	}
	return block, err == nil
}

func (f *Fallback) allocate(size int) []byte {
	b := f.plain.Allocate(size)
	addFallback(address(b), size)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.use.Allocations++
	f.use.Total++
	f.use.Live += int64(size)
	f.use.Peak = max(f.use.Peak, f.use.Live)
	f.use.Held = f.use.Live
	return b
}

func (f *Fallback) free(b []byte) {
	removeFallback(address(b))
	f.plain.Free(b)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.use.Allocations--
	f.use.Live -= int64(len(b))
	f.use.Held = f.use.Live
}
