package cdevice_test

import (
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// checkLeaks fails the test if it ends with more alive than it began with.
func checkLeaks(t *testing.T) {
	t.Helper()
	earlier()
	before := cdevice.ReadStats()
	t.Cleanup(func() {
		// Objects that end on other goroutines: readers that were released early, copies after the
		// work of their device. All others end with their test.
		last := func(s cdevice.Stats) [3]int64 { return [3]int64{s.Readers, s.DeviceCopies, s.Goroutines} }
		more := left(before)
		for deadline := time.Now().Add(10 * time.Second); last(more) != [3]int64{} && time.Now().Before(deadline); {
			runtime.Gosched()
			more = left(before)
		}
		assert.Zero(t, more, "something is not released")
	})
}

// earlier gives what an earlier test has ended the time to be gone. What an enclosing test holds stays.
func earlier() {
	held := func() bool { s := cdevice.ReadStats(); return s.Readers+s.DeviceCopies+s.Goroutines > 0 }
	for deadline := time.Now().Add(200 * time.Millisecond); held() && time.Now().Before(deadline); {
		runtime.Gosched()
	}
}

// settles fails the test if it ends with more alive than it began with. A stream that
// ended ends its goroutines a moment later, so that it asks until they have.
func settles(t *testing.T) {
	t.Helper()
	earlier()
	before, goroutines := cdevice.ReadStats(), runtime.NumGoroutine()
	t.Cleanup(func() {
		for deadline := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
			if left(before) == (cdevice.Stats{}) && runtime.NumGoroutine() <= goroutines {
				return
			}
			if time.Now().After(deadline) {
				break
			}
		}
		assert.Zero(t, left(before), "something is not released")
		assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines, "a goroutine is left")
	})
}

// left returns the live objects that before lacks. A goroutine that was ending then is not counted.
func left(before cdevice.Stats) cdevice.Stats {
	now := cdevice.ReadStats()
	more := reflect.ValueOf(&now).Elem()
	was := reflect.ValueOf(before)
	for i := range more.NumField() {
		more.Field(i).SetInt(more.Field(i).Int() - was.Field(i).Int())
	}
	now.Goroutines = max(now.Goroutines, 0)
	return now
}
