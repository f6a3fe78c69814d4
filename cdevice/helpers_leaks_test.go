package cdevice_test

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// checkLeaks fails the test if it ends with more alive than it began with.
func checkLeaks(t testing.TB) {
	t.Helper()
	earlier(t)
	before := cdevice.ReadStats()
	t.Cleanup(func() {
		// Objects that end on other goroutines: readers that were released early, and copies and imports after the
		// work of their device. All others end with their test.
		last := func(s cdevice.Stats) [4]int64 {
			return [4]int64{s.Readers, s.DeviceCopies, s.ImportedArrays, s.Goroutines}
		}
		within.Becomes(20*time.Second, func() bool { return last(left(before)) == [4]int64{} })
		assert.Zero(t, left(before), "something is not released")
	})
}

// earlier gives what an earlier test has ended the time to be gone: a test that counts what is alive begins
// with what stays. What an enclosing test holds stays, so a subtest waits for a moment only, and once.
func earlier(t testing.TB) {
	test, _, sub := strings.Cut(t.Name(), "/")
	patience := 20 * time.Second
	if sub {
		patience = 200 * time.Millisecond
	}
	if held.test != test {
		held.test, held.live = test, 0
	}
	var live int64
	within.Becomes(patience, func() bool {
		s := cdevice.ReadStats()
		live = s.Readers + s.DeviceCopies + s.ImportedArrays + s.Goroutines
		return live <= held.live
	})
	held.live = live
}

// held is how many objects stayed when a test, or a subtest of it, last began.
var held struct {
	test string
	live int64
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

// panics collects the messages of panics; the test checks them when all goroutines have ended.
func panics(t *testing.T) *atomic.Int64 {
	seen := new(atomic.Int64)
	before := bridge.OnPanic
	t.Cleanup(func() { bridge.OnPanic = before })
	bridge.OnPanic = func(any, []byte) { seen.Add(1) }
	return seen
}

// panicText is the text of the error that f panics with.
func panicText(t *testing.T, f func()) (text string) {
	t.Helper()
	defer func() {
		t.Helper()
		err, ok := recover().(error)
		require.True(t, ok, "a panic with an error")
		assert.ErrorIs(t, err, cdevice.ErrReleased)
		text = err.Error()
	}()
	f()
	return ""
}

// noPanic turns a panic into a failure, and so a read of memory that is not there.
func noPanic(t testing.TB, what string, body func()) {
	t.Helper()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			t.Errorf("%s: panic: %v\n%s", what, v, debug.Stack())
		}
	}()
	body()
}

// optionThatPanics is an option that panics, as code of a program may.
func optionThatPanics[O any]() O {
	return reflect.MakeFunc(reflect.TypeFor[O](), func([]reflect.Value) []reflect.Value { panic(errors.New("an option panics")) }).Interface().(O)
}

// soon returns a context for calls that must not take long.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// ends runs an export that waits for ever, and checks that it ends soon after its context.
func ends(t *testing.T, what string, want error, export func() error) {
	t.Helper()
	var err error
	within.Limit(t, 2*time.Second, what, func() error { err = export(); return nil })
	assert.ErrorIs(t, err, want, what)
}

// closes closes a reader whose source can end.
func closes(t testing.TB, r interface{ Close(context.Context) error }) {
	t.Helper()
	within.Seconds(t, "Close", func() error { return r.Close(background) })
}

// expires calls close with a context that ends while the source is in use: close must
// return soon after that. Any goroutine may call it.
func expires(t testing.TB, close func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(background, 5*time.Millisecond)
	defer cancel()
	begin := time.Now()
	assert.ErrorIs(t, close(ctx), context.DeadlineExceeded)
	assert.Less(t, time.Since(begin), 2*time.Second, "it should be 100 ms, and a loaded machine has more")
}

// release releases a reader and waits until the items of its goroutine are released too.
func release(t testing.TB, r *cdevice.RecordReader) {
	t.Helper()
	r.Release()
	streamsEnd(t)
}

// streamsEnd waits until no stream and no array of a producer is held.
func streamsEnd(t testing.TB) {
	t.Helper()
	within.Eventually(t, "the release of all streams", func() bool {
		s := cdevice.ReadStats()
		return s.ExportedStreams == 0 && s.ImportedStreams == 0 && s.ImportedArrays == 0
	})
}

// ready is Ready of a batch or an array, which must not fail.
func ready(t *testing.T, b interface{ Ready() (bool, error) }) bool {
	t.Helper()
	done, err := b.Ready()
	require.NoError(t, err)
	return done
}
