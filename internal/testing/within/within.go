// Package within bounds how long a test waits, so that a call that hangs fails its test, with
// the stacks of all goroutines, and the tests after it run.
package within

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	enough   = 5 * time.Second       // for a call that must not wait for work that is held back
	patience = 10 * time.Second      // for actions of other goroutines
	limit    = 50 * time.Millisecond // that [Context] gives a call
	lateness = 2 * time.Second       // of such a call: it should be 100 ms, and a loaded machine has more
)

// Seconds fails the test now unless f returns within five seconds, and without an error. f
// runs on another goroutine, so it must not use t.
func Seconds(t testing.TB, what string, f func() error) {
	t.Helper()
	Limit(t, enough, what, f)
}

// Limit is [Seconds] with another limit.
func Limit(t testing.TB, enough time.Duration, what string, f func() error) {
	t.Helper()
	result := make(chan error, 1)
	go func() {
		err := fmt.Errorf("%s: its goroutine ended", what)
		defer func() { result <- err }()
		err = f()
	}()
	select {
	case err := <-result:
		require.NoError(t, err, what)
	case <-time.After(enough):
		t.Fatalf("%s: not done after %v\n\n%s", what, enough, stacks())
	}
}

// Eventually fails the test now unless done becomes true within ten seconds.
func Eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !done(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s\n\n%s", what, stacks())
		}
	}
}

// Context calls f, which waits, with a context of 50 ms. f must return soon after that,
// with the context's error.
func Context(t testing.TB, what string, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var err error
	var late time.Duration
	Seconds(t, what, func() error {
		err = f(ctx)
		deadline, _ := ctx.Deadline()
		late = time.Since(deadline)
		return nil
	})
	assert.ErrorIs(t, err, context.DeadlineExceeded, what)
	assert.Less(t, late, lateness, what)
	t.Logf("%s: %v after the end of its context", what, late)
}

func stacks() string {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
	return b.String()
}
