package tree

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

type reuses struct{ n int }

func (r *reuses) Reuse() { r.n++ }

type panicking struct{}

func (panicking) Release() { panic("a release panics") }

// completeEvent is an event of a device that is complete.
type completeEvent struct{ device.Event }

func (completeEvent) OnComplete(f func()) { f() }

func (completeEvent) Close() error { return nil }

// An owner is used again only if nothing can refer to it after its end. It is zero then, and its next life has another number.
func TestOwnersAreUsedAgain(t *testing.T) {
	producer := cpeer.NewTree(cpeer.Node{Buffers: []uintptr{0}})
	defer producer.Free()
	for name, row := range map[string]struct {
		use  func(t *testing.T, m *Owner) // drops the last reference
		want int
	}{
		"released": {func(_ *testing.T, m *Owner) { m.Retain(); m.Release(); m.Release() }, 1},
		"pinned": {func(_ *testing.T, m *Owner) {
			m.ReplaceNulls([]Node{{Layout: &layout.All[layout.Fixed], Buffers: []uintptr{0, 0}}})
			m.Release()
		}, 1},
		"pinned after an export": {func(_ *testing.T, m *Owner) {
			bridge.CallArrayRelease(exportOf(m, bridge.BlockSize))
			m.PinMore(new(int64))
			m.Release()
		}, 1},
		"pinned after an export, which ends last": {func(_ *testing.T, m *Owner) {
			out := exportOf(m, bridge.BlockSize)
			m.PinMore(new(int64))
			m.Release()
			bridge.CallArrayRelease(out)
		}, 1},
		"pinned and exported": {func(_ *testing.T, m *Owner) {
			m.Pin(new(int64))
			bridge.CallArrayRelease(exportOf(m, bridge.BlockSize))
			m.Release()
		}, 1},
		"pinned and exported, and released by the consumer last": {func(_ *testing.T, m *Owner) {
			m.Pin(new(int64))
			out := exportOf(m, bridge.BlockSize)
			m.Release()
			bridge.CallArrayRelease(out)
		}, 1},
		"exported on goroutines that met": {func(_ *testing.T, m *Owner) {
			bridge.CallArrayRelease(exportOf(m, bridge.BlockSize))
			m.met.Add(1)
			m.Release()
		}, 1},
		"exported in lanes": {func(_ *testing.T, m *Owner) {
			bridge.CallArrayRelease(exportOf(m, bridge.BlockSize))
			m.makeLanes()
			m.Release()
		}, 0},
		"exported": {func(_ *testing.T, m *Owner) {
			bridge.CallArrayRelease(exportOf(m, bridge.BlockSize))
			m.Release()
		}, 1},
		"exported, and released by the consumer last": {func(_ *testing.T, m *Owner) {
			out := exportOf(m, bridge.BlockSize)
			m.Release()
			bridge.CallArrayRelease(out)
		}, 1},
		"released by a function that may keep the callback": {func(_ *testing.T, m *Owner) {
			m.ReleaseWith = func(release func()) { release() }
			m.Release()
		}, 0},
		"released after an event": {func(_ *testing.T, m *Owner) {
			m.Event = completeEvent{}
			m.Release()
		}, 0},
		"released after work": {func(_ *testing.T, m *Owner) {
			m.UsedOn(device.CPUDevice(), nil, nil)
			m.Release()
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			imported, owners := ImportedLive.Sum(), bridge.Owners()
			rooted, handles := RootedLive.Sum(), handle.Live()
			r, m := new(reuses), new(Owner)
			var in abi.ArrowDeviceArray
			for life := uint32(1); life < 6; life++ {
				ends := new(releases)
				if life%2 == 0 {
					m.Own(ends)
				} else {
					producer.Export(&in)
					m.Adopt(&in.Array)
				}
				m.Reuse = r
				assert.Equal(t, life, m.Life())
				before := r.n
				row.use(t, m)
				assert.Equal(t, before+row.want, r.n)
				assert.Equal(t, imported, ImportedLive.Sum())
				assert.EqualValues(t, (life+1)%2, ends.n)
				assert.Equal(t, owners, bridge.Owners())
				assert.Equal(t, rooted, RootedLive.Sum())
				assert.Equal(t, handles, handle.Live())
				assert.False(t, m.TryRetain(life))
				if row.want == 0 {
					return
				}
				again := new(Owner)
				again.refs.Begin()
				for range life - 1 {
					again.refs.Release(kind)
					again.refs.Begin()
				}
				again.refs.Release(kind)
				again.kept = m.kept
				assert.Equal(t, again, m, "zero, but for its life and the memory of exports")
			}
		})
	}
	t.Run("released by a callback that panics", func(t *testing.T) {
		r, m := new(reuses), new(Owner)
		m.Adopt(&abi.ArrowArray{Release: cpeer.PanickingArrayRelease})
		m.Reuse = r
		assert.Panics(t, m.Release)
		assert.Zero(t, r.n)
	})
	t.Run("of a value whose release panics", func(t *testing.T) {
		r, m := new(reuses), new(Owner)
		m.Own(panicking{})
		m.Reuse = r
		assert.Panics(t, m.Release)
		assert.Zero(t, r.n)
	})
}
