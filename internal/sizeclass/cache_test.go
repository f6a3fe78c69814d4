package sizeclass

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
)

// gpu is a source of addresses at which there is no memory.
type gpu struct {
	mu     sync.Mutex
	next   device.Ptr
	held   map[device.Ptr]int64
	calls  int
	refuse error

	allocating, freeing chan struct{} // unless nil, Allocate and Free wait for them
	entered             chan struct{} // unless nil, gets a value when a call begins to wait
}

func newGPU() *gpu { return &gpu{next: 1 << 20, held: map[device.Ptr]int64{}} }

func (*gpu) ID() device.ID { return device.ID{Type: device.CUDA, Ordinal: 0} }

func (g *gpu) pass(gate chan struct{}) {
	if gate != nil {
		g.entered <- struct{}{}
		<-gate
	}
}

func (g *gpu) Allocate(ctx context.Context, size int64) (device.Ptr, error) {
	g.pass(g.allocating)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	if g.refuse != nil {
		return 0, g.refuse
	}
	p := g.next
	g.next = (g.next + device.Ptr(size) + 2*alignment) &^ (alignment - 1)
	g.held[p] = size
	return p, nil
}

func (g *gpu) Free(p device.Ptr, size int64) {
	g.pass(g.freeing)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.held[p] != size {
		panic("freed what is not allocated")
	}
	delete(g.held, p)
}

func (g *gpu) bytes() (sum int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, size := range g.held {
		sum += size
	}
	return sum
}

func take(t *testing.T, c *Cache, size int64) Block {
	t.Helper()
	b, err := c.Take(context.Background(), size)
	require.NoError(t, err)
	require.GreaterOrEqual(t, b.Size, size)
	require.Zero(t, b.Ptr%64)
	return b
}

func TestAnIdleSlabIsCutAnew(t *testing.T) {
	src := newGPU()
	c := New(src, Limits{})
	for _, size := range []int64{64, 4096, 100, 1000} {
		var all []Block
		for range (64 << 10) / 4096 {
			all = append(all, take(t, c, size))
		}
		assert.EqualValues(t, 64<<10, c.Stats().Held)
		for _, b := range all {
			c.Give(b)
		}
	}
	assert.Equal(t, 1, src.calls)
	assert.Equal(t, Stats{Peak: 64 << 10, Held: 64 << 10, Idle: 64 << 10, Hits: 63, Misses: 1}, c.Stats())
	whole := take(t, c, 64<<10) // the slab as one block
	assert.Equal(t, 1, src.calls)
	c.Give(whole)
}

func TestAPartlyUsedSlabIsUsedAgain(t *testing.T) {
	src := newGPU()
	c := New(src, Limits{})
	kept, given := take(t, c, 64), take(t, c, 4096)
	c.Give(given)
	assert.Equal(t, Stats{Live: 64, Peak: 4160, Held: 64 << 10, Hits: 1, Misses: 1}, c.Stats())
	again, ok := c.TryTake(3000)
	assert.True(t, ok)
	assert.Equal(t, given.Ptr, again.Ptr)
	c.Give(again)
	c.Trim()
	assert.EqualValues(t, 64<<10, src.bytes())
	c.Give(kept)
	c.Trim()
	assert.Zero(t, src.bytes())
}

func TestTryTakeAsksNoSource(t *testing.T) {
	src := newGPU()
	c := New(src, Limits{})
	for _, size := range []int64{-1, 0, 64, 5 << 20} {
		_, ok := c.TryTake(size)
		assert.False(t, ok)
	}
	c.Give(take(t, c, 5<<20))
	b, ok := c.TryTake(3 << 20)
	assert.True(t, ok)
	assert.EqualValues(t, 5<<20, b.Size)
	_, ok = c.TryTake(3 << 20)
	assert.False(t, ok)
	c.Give(b)
	_, ok = c.TryTake(2 << 20) // 5 MiB are more than twice as much
	assert.False(t, ok)
	assert.Equal(t, 1, src.calls)
}

func TestGivenTwice(t *testing.T) {
	c := New(newGPU(), Limits{})
	const text = "sizeclass: a block was given back twice, or never taken"
	assert.PanicsWithValue(t, text, func() { c.Give(Block{}) })
	for _, size := range []int64{100, 5 << 20} {
		other := take(t, c, 100)
		b := take(t, c, size)
		c.Give(b)
		assert.PanicsWithValue(t, text, func() { c.Give(b) })
		next := take(t, c, size)
		require.Equal(t, b.Ptr, next.Ptr)
		assert.PanicsWithValue(t, text, func() { c.Give(b) }, "although its memory is in use again")
		c.Give(next)
		c.Give(other)
		c.Trim()
		assert.PanicsWithValue(t, text, func() { c.Give(b) })
	}
	assert.Zero(t, c.Stats().Live)
}

func TestTotalLimit(t *testing.T) {
	src := newGPU()
	c := New(src, Limits{Total: 8 << 20})
	large := take(t, c, 6<<20)
	_, err := c.Take(context.Background(), 3<<20)
	assert.ErrorIs(t, err, ErrLimit)
	small := take(t, c, 100) // a slab of the other half
	c.Give(large)
	other := take(t, c, 5<<20+1) // 6 MiB, cached
	assert.Equal(t, 2, src.calls)
	c.Give(other)
	_, err = c.Take(context.Background(), 8<<20)
	assert.ErrorIs(t, err, ErrLimit)
	assert.EqualValues(t, 6<<20, c.Stats().Idle, "nothing is freed for what has no room anyway")
	other = take(t, c, 7<<20) // in its place
	assert.EqualValues(t, 7<<20+64<<10, src.bytes())
	c.SetLimits(Limits{Total: 1 << 20})
	assert.EqualValues(t, 7<<20+64<<10, src.bytes(), "what is in use stays")
	c.Give(other)
	assert.EqualValues(t, 64<<10, src.bytes())
	c.Give(small)
	c.SetLimits(Limits{})
	c.Give(take(t, c, 20<<20))
}

func TestIdleLimit(t *testing.T) {
	src := newGPU()
	c := New(src, Limits{Idle: 10 << 20})
	var all []Block
	for _, mib := range []int64{5, 2, 5, 3} {
		all = append(all, take(t, c, mib<<20))
	}
	for _, b := range all {
		c.Give(b)
	}
	assert.EqualValues(t, 10<<20, c.Stats().Idle)
	assert.NotContains(t, src.held, all[0].Ptr, "the largest, and of these the first")
	assert.Contains(t, src.held, all[2].Ptr)
	c.SetLimits(Limits{Idle: 4 << 20})
	assert.Equal(t, map[device.Ptr]int64{all[1].Ptr: 2 << 20}, src.held, "3 MiB and 2 MiB are more than 4")
	c.SetLimits(Limits{Idle: -1})
	assert.Empty(t, src.held)
	kept, given := take(t, c, 100), take(t, c, 100)
	c.Give(given)
	assert.EqualValues(t, smallestSlab, src.bytes(), "half a slab is not idle")
	c.Give(kept)
	assert.Empty(t, src.held)
	c.SetLimits(Limits{Idle: 0})
	c.Give(take(t, c, 96<<20))
	assert.EqualValues(t, 96<<20, c.Stats().Idle)
}

func TestARefusalLosesNothing(t *testing.T) {
	cause := errors.New("no memory")
	src := newGPU()
	c := New(src, Limits{Total: 1 << 20})
	for _, size := range []int64{64, 1 << 19, 1 << 20} {
		src.refuse = cause
		for range 100 {
			_, err := c.Take(context.Background(), size)
			require.ErrorIs(t, err, cause)
		}
		assert.Zero(t, c.Stats().Held)
		src.refuse = nil
		c.Give(take(t, c, size))
		c.Trim()
	}
	for _, size := range []int64{0, -1, 1 << 60} {
		_, err := c.Take(context.Background(), size)
		assert.ErrorIs(t, err, errImpossible)
	}
}

func TestWhatIsCachedCostsNoGoMemory(t *testing.T) {
	c := New(newGPU(), Limits{})
	other := take(t, c, 100)
	for _, size := range []int64{100, 100_000, 10 << 20} {
		c.Give(take(t, c, size))
		assert.Zero(t, testing.AllocsPerRun(100, func() {
			b, _ := c.Take(context.Background(), size)
			c.Give(b)
		}), "size %d", size)
	}
	c.Give(other)
}
