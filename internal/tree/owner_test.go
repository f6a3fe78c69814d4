package tree

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

type releases struct{ n int }

func (r *releases) Release() { r.n++ }

// Memory that was let go stays gone: no later reference brings it back, and its
// end does not come twice.
func TestReleasedMemoryDoesNotComeBack(t *testing.T) {
	r := new(releases)
	m := Own(r)
	m.Retain()
	m.Release()
	assert.Zero(t, r.n)
	m.Release()
	assert.Equal(t, 1, r.n)
	for range 2 {
		func() {
			defer func() {
				err, _ := recover().(error)
				assert.ErrorIs(t, err, fielderr.ErrReleased)
			}()
			m.Retain()
		}()
	}
	assert.Equal(t, 1, r.n)
}

// Memory that C holds stays where it is, until the end of the owner.
func TestPinsEndWithTheOwner(t *testing.T) {
	rooted := bridge.Pinned.Sum()
	for range 10 {
		m := Own(new(releases))
		m.ReplaceNulls([]Node{{Layout: &layout.All[layout.Fixed], Buffers: []uintptr{0, 0}}})
		assert.Equal(t, rooted+1, bridge.Pinned.Sum())
		m.Release()
		assert.Equal(t, rooted, bridge.Pinned.Sum())
	}
	// The runtime ends the process when it collects a Pinner that still pins.
	for range 2 {
		collected := make(chan struct{})
		runtime.SetFinalizer(new([8]*int), func(*[8]*int) { close(collected) })
		for ended := false; !ended; {
			runtime.GC()
			select {
			case <-collected:
				ended = true
			case <-time.After(time.Millisecond):
			}
		}
	}
}

// An export keeps the memory after the last reference of Go.
func TestExportThatEndsLast(t *testing.T) {
	const huge = 64 << 20
	trees := bridge.Exports()
	r := new(releases)
	m := Own(r)
	bridge.CallArrayRelease(exportOf(m, huge))
	last := exportOf(m, huge)
	m.Release()
	assert.Zero(t, r.n)
	assert.Equal(t, trees+1, bridge.Exports())
	bridge.CallArrayRelease(last)
	assert.Equal(t, 1, r.n)
	assert.Equal(t, trees, bridge.Exports())
}

// A release callback of a producer in Go that panics leaves nothing pinned or counted.
func TestPanickingReleaseEndsTheRest(t *testing.T) {
	for name, around := range map[string]func(func()){
		"called directly": nil,
		"by a releaser":   func(release func()) { release() },
	} {
		t.Run(name, func(t *testing.T) {
			imported, rooted, handles := ImportedLive.Sum(), bridge.Pinned.Sum(), handle.Live()
			m := Adopt(&abi.ArrowArray{Release: cpeer.PanickingArrayRelease})
			m.ReleaseWith(around)
			m.Pin(new(int64))
			assert.Equal(t, imported+1, ImportedLive.Sum())
			assert.Equal(t, rooted+1, bridge.Pinned.Sum())
			assert.PanicsWithValue(t, "cpeer: a release callback panics", m.Release)
			assert.Equal(t, imported, ImportedLive.Sum())
			assert.Equal(t, rooted, bridge.Pinned.Sum())
			assert.Equal(t, handles, handle.Live())
		})
	}
}
