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

// A Release too many is of no other life, not even while it is found out.
func TestReleaseTooManyIsOfNoOtherLife(t *testing.T) {
	var l Lives
	for range 2 {
		l.Begin()
		l.Release("memory")
	}
	var other atomic.Int64
	end := make(chan struct{})
	var look sync.WaitGroup
	look.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
				for number := range uint32(4) {
					if l.Alive(number) || tryRetain(&l, number) {
						other.Add(1)
					}
				}
			}
		}
	})
	tooMany := func() {
		defer func() { _ = recover() }()
		l.Release("memory")
	}
	for range 100_000 {
		tooMany()
	}
	close(end)
	look.Wait()
	assert.Zero(t, other.Load())
	assert.EqualValues(t, 2, l.Number())
	l.Begin()
	assert.EqualValues(t, 3, l.Number())
	assert.True(t, l.Release("memory"))
}
