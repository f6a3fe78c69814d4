package tree

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/handle"
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

// A release callback of a producer in Go that panics leaves nothing pinned or counted.
func TestPanickingReleaseEndsTheRest(t *testing.T) {
	for name, around := range map[string]func(func()){
		"called directly": nil,
		"by a releaser":   func(release func()) { release() },
	} {
		t.Run(name, func(t *testing.T) {
			imported, rooted, handles := ImportedLive.Load(), RootedLive.Load(), handle.Live()
			m := Adopt(&abi.ArrowArray{Release: cpeer.PanickingArrayRelease})
			m.ReleaseWith = around
			m.Pin(new(int64))
			assert.Equal(t, imported+1, ImportedLive.Load())
			assert.Equal(t, rooted+1, RootedLive.Load())
			assert.PanicsWithValue(t, "cpeer: a release callback panics", m.Release)
			assert.Equal(t, imported, ImportedLive.Load())
			assert.Equal(t, rooted, RootedLive.Load())
			assert.Equal(t, handles, handle.Live())
		})
	}
}
