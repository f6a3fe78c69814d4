package cdevice_test

import (
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// checkLeaks fails the test if it ends with more alive than it began with.
func checkLeaks(t testing.TB) {
	t.Helper()
	earlier(t)
	before := cdevice.ReadStats()
	t.Cleanup(func() {
		// Objects that end on other goroutines: readers that were released early, copies after the
		// work of their device. All others end with their test.
		last := func(s cdevice.Stats) [3]int64 { return [3]int64{s.Readers, s.DeviceCopies, s.Goroutines} }
		within.Becomes(20*time.Second, func() bool { return last(left(before)) == [3]int64{} })
		assert.Zero(t, left(before), "something is not released")
	})
}

// earlier gives what an earlier test has ended the time to be gone: a test that counts what is alive begins
// with what stays. What an enclosing test holds stays, so a subtest waits for a moment only.
func earlier(t testing.TB) {
	patience := 20 * time.Second
	if strings.Contains(t.Name(), "/") {
		patience = 200 * time.Millisecond
	}
	within.Becomes(patience, func() bool {
		s := cdevice.ReadStats()
		return s.Readers+s.DeviceCopies+s.Goroutines == 0
	})
}

// settles fails the test if it ends with more alive than it began with. A stream that
// ended ends its goroutines a moment later, so that it asks until they have.
func settles(t *testing.T) {
	t.Helper()
	earlier(t)
	before, goroutines := cdevice.ReadStats(), runtime.NumGoroutine()
	t.Cleanup(func() {
		if within.Becomes(20*time.Second, func() bool {
			return left(before) == (cdevice.Stats{}) && runtime.NumGoroutine() <= goroutines
		}) {
			return
		}
		assert.Zero(t, left(before), "something is not released")
		assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines, "a goroutine is left")
	})
}

// left returns the live objects that before lacks. What was ending then, of an earlier test, and is gone now,
// is none less; what was released too often is.
func left(before cdevice.Stats) cdevice.Stats {
	now := cdevice.ReadStats()
	more := reflect.ValueOf(&now).Elem()
	was := reflect.ValueOf(before)
	for i := range more.NumField() {
		if n := more.Field(i).Int(); n >= 0 {
			more.Field(i).SetInt(max(0, n-was.Field(i).Int()))
		}
	}
	return now
}
