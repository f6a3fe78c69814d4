package sizeclass

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// blocked returns a cache whose source blocks from now on, until open is called.
func blocked(limits Limits) (c *Cache, src *gpu, open func()) {
	src = newGPU()
	gate := make(chan struct{})
	src.allocating, src.freeing, src.entered = gate, gate, make(chan struct{}, 1000)
	return New(src, limits), src, sync.OnceFunc(func() { close(gate) })
}

// cachedBlocks puts blocks of these sizes into the cache of a source that blocks.
func cachedBlocks(t *testing.T, c *Cache, src *gpu, sizes ...int64) (all []Block) {
	gate := src.allocating
	src.allocating = nil
	for _, size := range sizes {
		all = append(all, take(t, c, size))
	}
	src.allocating = gate
	return all
}

func TestABlockingSourceHoldsUpNothing(t *testing.T) {
	c, src, open := blocked(Limits{})
	defer open()
	all := cachedBlocks(t, c, src, 5<<20, 64, 64)
	c.Give(all[0])
	c.Give(all[1])
	var wg sync.WaitGroup
	defer wg.Wait()
	defer open()
	use := func() {
		within.Seconds(t, "another call", func() error {
			b, ok := c.TryTake(64)
			assert.True(t, ok)
			c.Give(b)
			c.Give(take(t, c, 64))
			c.TrimUnused()
			c.SetLimits(Limits{})
			c.Stats()
			return nil
		})
	}
	wg.Go(func() { c.Trim() })
	<-src.entered
	use()
	for _, size := range []int64{5 << 20, 8 << 10, 100 << 10} { // each one waits for the source, not for the others
		wg.Go(func() {
			b, err := c.Take(context.Background(), size)
			assert.NoError(t, err)
			c.Give(b)
		})
		<-src.entered
		use()
	}
}

// While the source allocates a slab, other callers that need one wait for it.
func TestOneSlabServesAll(t *testing.T) {
	c, src, open := blocked(Limits{})
	defer open()
	var wg sync.WaitGroup
	for range 200 {
		wg.Go(func() {
			_, err := c.Take(context.Background(), 64)
			assert.NoError(t, err)
		})
	}
	<-src.entered
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	within.Seconds(t, "Take", func() error {
		_, err := c.Take(ctx, 64)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		return nil
	})
	open()
	wg.Wait()
	assert.Equal(t, 1, src.calls)
	assert.EqualValues(t, 200*64, c.Stats().Live)
}

// A slab that the source refuses to one leaves the next one to ask.
func TestARefusedSlabIsAskedForAgain(t *testing.T) {
	c, src, open := blocked(Limits{})
	defer open()
	src.refuse = assert.AnError
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			_, err := c.Take(context.Background(), 64)
			assert.ErrorIs(t, err, assert.AnError)
		})
	}
	<-src.entered
	open()
	wg.Wait()
	assert.Equal(t, 20, src.calls)
}

// Memory that is being freed is held until it is free: at the limit, it is waited for.
func TestAtTheLimitFreesAreWaitedFor(t *testing.T) {
	c, src, open := blocked(Limits{Total: 8 << 20})
	defer open()
	c.Give(cachedBlocks(t, c, src, 8<<20)[0])
	src.allocating = nil
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	within.Seconds(t, "Take", func() error {
		_, err := c.Take(ctx, 3<<20)
		assert.ErrorIs(t, err, context.DeadlineExceeded)
		assert.ErrorContains(t, err, "waiting for cuda:0 memory")
		return nil
	})
	assert.EqualValues(t, 8<<20, c.Stats().Held)
	assert.Zero(t, c.Stats().Idle)
	_, err := c.Take(context.Background(), 9<<20)
	assert.ErrorIs(t, err, ErrLimit, "waiting does not help")
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			b, err := c.Take(context.Background(), 4<<20)
			if assert.NoError(t, err) {
				c.Give(b)
			}
		})
	}
	open()
	wg.Wait()
	c.Trim()
	assert.Empty(t, src.held)
}

// A block that is returned, and a limit that is raised, end a wait although the source
// still blocks.
func TestAWaitEndsEarly(t *testing.T) {
	for name, end := range map[string]func(c *Cache, b Block){
		"give":   func(c *Cache, b Block) { c.Give(b) },
		"limits": func(c *Cache, b Block) { c.SetLimits(Limits{}) },
	} {
		t.Run(name, func(t *testing.T) {
			c, src, open := blocked(Limits{Total: 16 << 20})
			defer open()
			all := cachedBlocks(t, c, src, 7<<20, 8<<20)
			c.Give(all[0])
			src.allocating = nil
			taken := make(chan error)
			go func() {
				_, err := c.Take(context.Background(), 8<<20)
				taken <- err
			}()
			<-src.entered // all[0] is being freed: the lock is free again when Take waits
			end(c, all[1])
			within.Seconds(t, name, func() error { return <-taken })
		})
	}
}

func TestManyTakers(t *testing.T) {
	src := newGPU()
	const total = 64 << 20
	c := New(src, Limits{Total: total, Idle: 8 << 20})
	var users sync.Map // the first and last 64 bytes of a block -> *Block
	ends := func(b Block) [2]device.Ptr { return [2]device.Ptr{b.Ptr, b.Ptr + device.Ptr(b.Size) - 64} }
	var refused atomic.Int64
	var wg, hold sync.WaitGroup
	const takers = 200
	hold.Add(takers)
	for g := range takers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			var mine []Block
			give := func(i int) {
				for _, p := range ends(mine[i]) {
					users.Delete(p)
				}
				c.Give(mine[i])
				mine = append(mine[:i], mine[i+1:]...)
			}
			for i := range 200 {
				b, err := c.Take(context.Background(), 1+r.Int64N(1<<r.IntN(24)))
				if err != nil {
					assert.ErrorIs(t, err, ErrLimit)
					refused.Add(1)
				} else {
					for _, p := range ends(b) {
						if other, taken := users.LoadOrStore(p, &b); taken && other != &b {
							t.Errorf("block %#x has memory of block %#x", b.Ptr, other.(*Block).Ptr)
						}
					}
					mine = append(mine, b)
				}
				if i == 2 { // all hold three blocks, or were refused: on one core they would run one after the other
					hold.Done()
					hold.Wait()
				}
				if n := len(mine); n > 3 || n > 0 && err != nil {
					give(r.IntN(n))
				}
				switch i % 50 {
				case 10:
					c.Trim()
				case 20:
					c.TrimUnused()
				case 30:
					if src.bytes() > total {
						t.Error("more than the limit is held")
					}
				}
			}
			for len(mine) > 0 {
				give(0)
			}
		})
	}
	wg.Wait()
	require.Positive(t, refused.Load(), "the limit was never reached")
	c.Trim()
	s := c.Stats()
	assert.Equal(t, []int64{0, 0, 0}, []int64{s.Live, s.Held, s.Idle})
	assert.Empty(t, src.held)
}
