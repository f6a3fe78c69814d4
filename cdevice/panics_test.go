package cdevice_test

import (
	"errors"
	"reflect"
	"runtime/debug"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

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
