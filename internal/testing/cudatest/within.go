package cudatest

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
	limit    = 50 * time.Millisecond // that [EndsInTime] gives a call
	lateness = 2 * time.Second       // of such a call: it should be 100 ms, and a loaded machine has more
)

// Within fails the test now unless f returns within five seconds, and without an error. f
// runs on another goroutine, so it must not use t.
func Within(t testing.TB, what string, f func() error) {
	t.Helper()
	WithinTime(t, enough, what, f)
}

// WithinTime is [Within] with another limit.
func WithinTime(t testing.TB, enough time.Duration, what string, f func() error) {
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

// Eventually fails the test now unless done becomes true within five seconds.
func Eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(enough); !done(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s\n\n%s", what, stacks())
		}
	}
}

// EndsInTime calls f, which waits, with a context of 50 ms. f must return soon after that,
// with the context's error.
func EndsInTime(t testing.TB, what string, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var err error
	var late time.Duration
	Within(t, what, func() error {
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
