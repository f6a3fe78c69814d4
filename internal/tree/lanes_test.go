package tree

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// withLanes is an owner that has lanes, and counts what is left of it at the end of the test.
func withLanes(t *testing.T) (*Owner, *releases) {
	handles, owners, trees := handle.Live(), bridge.Owners(), bridge.Trees()
	t.Cleanup(func() {
		assert.Equal(t, handles, handle.Live())
		assert.Equal(t, owners, bridge.Owners())
		assert.Equal(t, trees, bridge.Trees())
	})
	r := new(releases)
	m := Own(r)
	bridge.CallArrayRelease(exportOf(m, bridge.BlockSize))
	m.makeLanes()
	return m, r
}

// in is a use of lane i.
func (m *Owner) in(i int) Held {
	l := &m.lanes.Load().all[i]
	if !l.enter() {
		return Held{}
	}
	return Held{Owner: m, lane: l}
}

// A caller that holds no reference gets none in a later life of the owner, which has lanes.
func TestLateHoldFindsNoLaneOfALaterLife(t *testing.T) {
	m, src := new(Owner), new(abi.ArrowArray)
	m.Adopt(src)
	m.Reuse = unusedOwner{}
	first := m.Life()
	m.Release()
	m.Adopt(src)
	require.NotEqual(t, first, m.Life(), "it is used again")
	bridge.CallArrayRelease(exportOf(m, bridge.BlockSize))
	m.makeLanes()
	_, ok := m.Hold(first)
	assert.False(t, ok)
	h, ok := m.Hold(m.Life())
	assert.True(t, ok)
	h.Release()
	m.Release()
}

// unusedOwner is told that an owner may be used again.
type unusedOwner struct{}

func (unusedOwner) Reuse() {}

// The memory ends once, with the last of: the references, the calls that are in a lane, and the trees.
func TestMemoryEndsAfterTheLastLane(t *testing.T) {
	type user struct {
		held Held
		tree *abi.ArrowArray
	}
	drop := func(u *user) {
		if u.held.Owner != nil {
			u.held.Release()
		} else {
			bridge.CallArrayRelease(u.tree)
		}
	}
	users := func(m *Owner) (all []*user) {
		all = append(all, &user{held: m.in(5)}, &user{held: m.in(6)}, &user{tree: exportOf(m, bridge.BlockSize)})
		for i := range 3 {
			h := m.in(i)
			all = append(all, &user{held: h}, &user{tree: exportOf(h, bridge.BlockSize)}, &user{tree: exportOf(h, bridge.BlockSize)})
		}
		return append(all, &user{held: all[1].held.Retain()}, &user{held: Held{Owner: m}.Retain()})
	}
	for _, before := range []int{0, 1, 5, 14} { // so many users end before the last reference
		for _, reverse := range []bool{false, true} { // trees end before, or after, the calls that made them
			m, r := withLanes(t)
			all := users(m)
			require.Len(t, all, 14)
			if reverse {
				slices.Reverse(all)
			}
			for _, u := range all[:before] {
				drop(u)
			}
			assert.Zero(t, r.n)
			m.Release()
			for _, u := range all[before:] {
				assert.Zero(t, r.n, "%d before", before)
				drop(u)
			}
			assert.Equal(t, 1, r.n, "%d before", before)
			for i := range m.lanes.Load().all {
				assert.Nil(t, m.in(i).Owner, "a lane that is closed")
			}
			_, ok := m.Hold(m.refs.Number())
			assert.False(t, ok)
		}
	}
}

// A lane keeps its block for its next export.
func TestLanesKeepTheirBlocks(t *testing.T) {
	m, _ := withLanes(t)
	defer m.Release()
	h := m.in(1)
	defer h.Release()
	block := func() uintptr {
		a := exportOf(h, bridge.BlockSize)
		defer bridge.CallArrayRelease(a)
		return a.PrivateData
	}
	first := block()
	assert.Equal(t, first, block())
	other := m.in(2)
	defer other.Release()
	a := exportOf(other, bridge.BlockSize)
	defer bridge.CallArrayRelease(a)
	assert.NotEqual(t, first, a.PrivateData)
}

// An owner with lanes is not used again: a call of its life that comes late finds closed lanes.
func TestOwnersWithLanesAreNotUsedAgain(t *testing.T) {
	r, m := new(reuses), Own(new(releases))
	m.Reuse = r
	m.makeLanes()
	m.Release()
	assert.Zero(t, r.n)
}

// Exports that meet get lanes, and those of one goroutine do not. The memory ends once, if calls race the last reference.
func TestExportsThatMeet(t *testing.T) {
	for range 5 {
		handles, owners, trees := handle.Live(), bridge.Owners(), bridge.Trees()
		r := new(releases)
		m := Own(r)
		number := m.Life()
		export := func() bool {
			h, ok := m.Hold(number)
			if ok {
				a := exportOf(h, bridge.BlockSize)
				h.Release()
				bridge.CallArrayRelease(a)
			}
			return ok
		}
		for range 100 {
			require.True(t, export())
		}
		assert.Nil(t, m.lanes.Load())
		var all sync.WaitGroup
		var ended atomic.Int64
		for range 4 {
			all.Go(func() {
				for export() {
				}
				ended.Add(1)
			})
		}
		within.Eventually(t, "lanes of exports that meet", func() bool { return m.lanes.Load() != nil })
		for range 100 {
			require.True(t, export())
		}
		assert.Zero(t, ended.Load())
		m.Release()
		all.Wait()
		assert.Equal(t, 1, r.n)
		assert.Equal(t, handles, handle.Live())
		assert.Equal(t, owners, bridge.Owners())
		assert.Equal(t, trees, bridge.Trees())
	}
}
