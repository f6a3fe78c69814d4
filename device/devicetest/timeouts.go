package devicetest

import (
	"bytes"
	"fmt"
	"runtime/pprof"
	"time"

	"github.com/stretchr/testify/assert"
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

// within ends the rule unless f returns in time, and without an error. f runs on another
// goroutine, so it must not use t.
func within(t T, what string, f func() error) {
	t.Helper()
	result := make(chan error, 1)
	go func() {
		ended := false
		defer func() {
			if !ended { // by runtime.Goexit
				result <- fmt.Errorf("%s: its goroutine ended", what)
			}
		}()
		err := f()
		ended = true
		result <- err
	}()
	select {
	case err := <-result:
		if !assert.NoError(t, err, what) {
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
	select {
	case <-from:
	case <-time.After(callTimeout):
		var stacks bytes.Buffer
		_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
		t.Errorf("%s: not after %v\n\n%s", what, callTimeout, stacks.String())
		t.FailNow()
	}
}
