// Package within bounds how long a test waits, so that a call that hangs fails its test, with
// the stacks of all goroutines, and the tests after it run.
package within

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What does not happen hangs, so that the bounds cost time only where a test fails; on a busy machine much
// takes seconds.
const (
	enough   = 30 * time.Second      // for a call that must not wait for work that is held back
	patience = 30 * time.Second      // for actions of other goroutines
	limit    = 50 * time.Millisecond // that [Context] gives a call
	lateness = 2 * time.Second       // of such a call, and what the machine delays it: it should be 100 ms
	longest  = time.Millisecond      // between two looks of [Becomes]
)

// Seconds fails the test now unless f returns within half a minute, and without an error. f
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

// Eventually fails the test now unless done becomes true within half a minute.
func Eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	if !Becomes(patience, done) {
		t.Fatalf("never: %s\n\n%s", what, stacks())
	}
}

// Becomes reports whether done becomes true in time.
func Becomes(limit time.Duration, done func() bool) bool {
	began := time.Now()
	for pause := time.Microsecond; !done(); pause = min(2*pause, longest) {
		if time.Since(began) > limit {
			return false
		}
		time.Sleep(pause)
	}
	return true
}

// Context calls f, which waits, with a context of 50 ms. f must return soon after that,
// with the context's error.
func Context(t testing.TB, what string, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	pace := MeasurePace()
	defer pace.Stop()
	deadline, _ := ctx.Deadline()
	var err error
	var late, allowance time.Duration
	Seconds(t, what, func() error {
		err = f(ctx)
		now := time.Now()
		late, allowance = now.Sub(deadline), pace.Allowance(deadline.Add(-limit), now)
		return nil
	})
	assert.ErrorIs(t, err, context.DeadlineExceeded, what)
	assert.Less(t, late, lateness+allowance, what)
	t.Logf("%s: %v after the end of its context", what, late)
}

func stacks() string {
	var b bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
	return b.String()
}
