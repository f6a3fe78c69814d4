package cdevice

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

type releases struct{ n int }

func (r *releases) Release() { r.n++ }

// Memory that was let go stays gone: no later reference brings it back, and its
// end does not come twice.
func TestReleasedMemoryDoesNotComeBack(t *testing.T) {
	r := new(releases)
	m := adoptGo(r)
	m.retain()
	m.Release()
	assert.Zero(t, r.n)
	m.Release()
	assert.Equal(t, 1, r.n)
	for range 2 {
		func() {
			defer func() {
				err, _ := recover().(error)
				assert.ErrorIs(t, err, ErrReleased)
			}()
			m.retain()
		}()
	}
	assert.Equal(t, 1, r.n)
}
