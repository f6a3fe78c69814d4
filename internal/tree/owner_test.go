package tree

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
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
