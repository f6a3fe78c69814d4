package devicetest

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"time"
)

const (
	// callTimeout is how long a rule waits for a call that must not wait for a held stream. Such a call
	// is over at once; a machine that runs other tests beside it took seconds.
	callTimeout = 20 * time.Second
	// limit is how long a rule gives a call whose context can end.
	limit = 50 * time.Millisecond
	// maxDelay is how late such a call may be. It should be 100 ms; a loaded machine has more.
	maxDelay = 2 * time.Second
)

// failure is the error that check or must has ended a function of [attempt] with.
type failure struct{ error }

// attempt calls f and returns the error that check or must has ended it with.
func attempt(f func()) (err error) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case failure:
			err = v.error
		default:
			panic(v)
		}
	}()
	f()
	return nil
}

// check ends the function that attempt calls, if there is an error. It is for rules, which are called so, and for
// what they pass to within, not for functions that a device calls.
func check(err error) {
	if err != nil {
		fail(err)
	}
}

// must returns v, unless there is an error: then it is check.
func must[V any](v V, err error) V {
	if err != nil {
		fail(err)
	}
	return v
}

// fail names the line of the rule.
func fail(err error) {
	_, file, line, _ := runtime.Caller(2)
	panic(failure{fmt.Errorf("%s:%d: %w", filepath.Base(file), line, err)})
}

// within ends the rule unless f returns in time, and without an error of check. f runs on another
// goroutine, so it must not use t.
func within(t T, what string, f func()) {
	t.Helper()
	result := make(chan error, 1)
	go func() {
		err := errors.New("its goroutine ended") // by runtime.Goexit
		defer func() { result <- err }()
		err = attempt(f)
	}()
	select {
	case err := <-result:
		if err != nil {
			t.Errorf("%s: %v", what, err)
			t.FailNow()
		}
	case <-time.After(callTimeout):
		var stacks bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
		t.Errorf("%s: not done after %v\n\n%s", what, callTimeout, stacks.String())
		t.FailNow()
	}
}

// received waits for a channel to be closed, or for one value, as within does.
func received[V any](t T, what string, from <-chan V) {
	t.Helper()
	within(t, what, func() { <-from })
}
