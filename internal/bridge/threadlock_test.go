package bridge

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// lockOf returns the lock of a function that is called through so many callbacks from C, below a deep stack.
func lockOf(callbacks int) (lock ThreadLock) {
	if callbacks == 0 {
		return deep(200)
	}
	cpeer.CallBack(func() { lock = lockOf(callbacks - 1) })
	return lock
}

func deep(frames int) (lock ThreadLock) {
	if frames == 0 {
		return CurrentThreadLock()
	}
	lock = deep(frames - 1)
	runtime.KeepAlive(&lock) // no tail call
	return lock
}

func TestThreadLock(t *testing.T) {
	assert.Zero(t, lockOf(0))
	runtime.LockOSThread() // or another thread may run the next callback
	defer runtime.UnlockOSThread()
	locks := map[ThreadLock]int{}
	for callbacks := range 4 {
		locks[lockOf(callbacks)] = callbacks
		assert.Equal(t, callbacks, locks[lockOf(callbacks)])
	}
	assert.Len(t, locks, 4)
	assert.NotContains(t, locks, ThreadLock{})
	other := make(chan ThreadLock)
	go func() { other <- lockOf(1) }()
	assert.NotContains(t, locks, <-other)
	runtime.UnlockOSThread()
	defer runtime.LockOSThread()
	assert.Zero(t, CurrentThreadLock())
}
