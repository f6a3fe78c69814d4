package refcount

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

func tryRetain(l *Lives, number uint32) bool {
	ok, _ := l.TryRetain(number)
	return ok
}

func TestLives(t *testing.T) {
	var l Lives
	assert.False(t, tryRetain(&l, 0))
	for number := uint32(1); number < 4; number++ {
		l.Begin()
		assert.Equal(t, number, l.Number())
		assert.True(t, l.Sole())
		assert.True(t, tryRetain(&l, number))
		l.Retain("memory")
		assert.False(t, l.Sole())
		assert.False(t, l.Release("memory"))
		assert.False(t, tryRetain(&l, number-1), "of the life before")
		assert.False(t, tryRetain(&l, number+1))
		assert.True(t, l.Alive(number))
		assert.False(t, l.Alive(number-1))
		assert.False(t, l.Release("memory"))
		assert.True(t, l.Release("memory"))
		for range 2 { // a misuse changes nothing
			assert.False(t, tryRetain(&l, number))
			assert.False(t, l.Alive(number))
			err := panicOf(t, func() { l.Retain("memory") })
			assert.EqualError(t, err, "cdevice: memory: Retain after the last Release: invalid: already released")
			assert.ErrorIs(t, err, fielderr.ErrReleased)
			err = panicOf(t, func() { l.Release("memory") })
			assert.EqualError(t, err, "cdevice: memory: Release of an object without references: invalid: already released")
		}
	}
}

// A goroutine that holds no reference never gets one in a later life.
func TestLateRetainIsOfNoOtherLife(t *testing.T) {
	var l Lives
	var lives, stray atomic.Int64
	l.Begin()
	number := l.Number()
	l.Release("memory")
	end := make(chan struct{})
	var late sync.WaitGroup
	for range 2 {
		late.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
					if tryRetain(&l, number) {
						stray.Add(1)
					}
				}
			}
		})
	}
	for range 10_000 {
		l.Begin()
		if l.Release("memory") {
			lives.Add(1)
		}
	}
	close(end)
	late.Wait()
	assert.EqualValues(t, 10_000, lives.Load())
	assert.Zero(t, stray.Load())
}
