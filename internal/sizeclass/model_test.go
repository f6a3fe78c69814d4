package sizeclass

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
)

// model is a reference model of a cache, computed from the allocations of its source and the blocks
// in use.
type model struct {
	*testing.T
	c      *Cache
	src    *gpu
	limits Limits // normal
	blocks []Block
	since  map[device.Ptr]int // when an allocation became idle, in calls of TrimUnused
	epoch  int
	peak   int64
}

// users counts the blocks in an allocation.
func (m *model) users(p device.Ptr) (n int) {
	for _, b := range m.blocks {
		if b.Ptr >= p && b.Ptr < p+device.Ptr(m.src.held[p]) {
			n++
		}
	}
	return n
}

func (m *model) idle() (bytes int64) {
	for p, size := range m.src.held {
		if m.users(p) == 0 {
			bytes += size
		}
	}
	return bytes
}

func (m *model) check() {
	live := int64(0)
	for _, b := range m.blocks {
		live += b.Size
	}
	m.peak = max(m.peak, live)
	got := m.c.Stats()
	got.Hits, got.Misses = 0, 0
	require.Equal(m, Stats{Live: live, Peak: m.peak, Held: m.src.bytes(), Idle: m.idle()}, got)
	require.LessOrEqual(m, got.Idle, m.limits.Idle)
	if got.Held > m.limits.Total { // it was lowered meanwhile
		require.Zero(m, got.Idle)
	}
}

func (m *model) took(b Block) {
	inside := false
	for p, size := range m.src.held {
		inside = inside || b.Ptr >= p && b.Ptr+device.Ptr(b.Size) <= p+device.Ptr(size)
	}
	require.True(m, inside, "a block is memory of the source")
	require.Zero(m, b.Ptr%device.Ptr(min(b.Size, alignment)), "alignment")
	for _, other := range m.blocks {
		require.False(m, b.Ptr < other.Ptr+device.Ptr(other.Size) && other.Ptr < b.Ptr+device.Ptr(b.Size), "two blocks overlap")
	}
	m.blocks = append(m.blocks, b)
}

func (m *model) take(size int64) {
	class, err := classOf(size)
	require.NoError(m, err)
	used, calls := m.src.bytes()-m.idle(), m.src.calls
	room := sizeOf(class) <= m.limits.Total-used
	b, err := m.c.Take(context.Background(), size)
	if errors.Is(err, ErrLimit) {
		require.False(m, room)
		return
	}
	require.NoError(m, err)
	require.GreaterOrEqual(m, b.Size, size)
	require.LessOrEqual(m, b.Size, 2*sizeOf(class))
	if m.src.calls > calls {
		require.LessOrEqual(m, m.src.bytes(), m.limits.Total)
	}
	m.took(b)
}

func (m *model) tryTake(size int64) {
	calls := m.src.calls
	b, ok := m.c.TryTake(size)
	require.Equal(m, calls, m.src.calls)
	if ok {
		m.took(b)
	}
}

func (m *model) give(i int) {
	b := m.blocks[i]
	m.blocks = append(m.blocks[:i], m.blocks[i+1:]...)
	for p, size := range m.src.held {
		if b.Ptr >= p && b.Ptr < p+device.Ptr(size) && m.users(p) == 0 {
			m.since[p] = m.epoch
		}
	}
	m.c.Give(b)
}

func (m *model) trimUnused() {
	want := maps.Clone(m.src.held)
	for p := range m.src.held {
		if m.users(p) == 0 && m.since[p] < m.epoch {
			delete(want, p)
		}
	}
	m.c.TrimUnused()
	m.epoch++
	require.Equal(m, want, m.src.held)
}

func (m *model) setLimits(r *rand.Rand) {
	limits := Limits{Total: r.Int64N(64 << 20), Idle: r.Int64N(32<<20) - 1<<20}
	if r.IntN(4) == 0 {
		limits = Limits{}
	}
	m.c.SetLimits(limits)
	if limits.Total == 0 {
		limits.Total = math.MaxInt64
	}
	if limits.Idle == 0 {
		limits.Idle = math.MaxInt64
	}
	m.limits = Limits{limits.Total, max(limits.Idle, 0)}
}

func TestModel(t *testing.T) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		src := newGPU()
		m := &model{T: t, src: src, c: New(src, Limits{}), limits: Limits{math.MaxInt64, math.MaxInt64}, since: map[device.Ptr]int{}}
		for range 2000 {
			size := 1 + r.Int64N(1<<r.IntN(24))
			switch op := r.IntN(100); {
			case op < 40:
				m.take(size)
			case op < 50:
				m.tryTake(size)
			case op < 95 && len(m.blocks) > 0:
				m.give(r.IntN(len(m.blocks)))
			case op < 97:
				m.trimUnused()
			case op < 98:
				m.c.Trim()
				require.Zero(t, m.idle())
			case op < 99:
				m.setLimits(r)
			}
			m.check()
		}
		for len(m.blocks) > 0 {
			m.give(0)
		}
		m.c.Trim()
		require.Empty(t, src.held)
	}
}
