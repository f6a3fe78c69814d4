package devicetest

import (
	"context"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
)

// contextRules hold for every device.
var contextRules = []rule{
	{"a context that has ended is refused, and nothing was done", func(t T, c *contract) {
		const n = 1000
		to := c.allocate(t, n)
		c.write(t, to.Ptr(), pattern(n, 1))
		s := c.stream(t)
		for _, ctx := range endedContexts() {
			for _, size := range []int64{0, 1, n, 1 << 20} {
				m, err := c.Allocate(ctx, size, s)
				refused(t, ctx, err, m == nil, "Allocate")
				if c.Stager != nil {
					m, err = c.AllocateHost(ctx, size)
					refused(t, ctx, err, m == nil, "AllocateHost")
				}
			}
			for _, list := range [][]device.Range{nil, one(to.Ptr(), pin(t, pattern(n, 2)).at(0), n)} {
				if c.Stager != nil {
					e, err := c.Upload(ctx, list, s)
					refused(t, ctx, err, e == nil, "Upload")
				}
			}
		}
		assert.Equal(t, pattern(n, 1), c.read(t, to.Ptr(), n, s))
	}},
}

// heldContextRules need a stream that is held back, so that a wait lasts.
var heldContextRules = []rule{
	{"a context ends a wait in time", func(t T, c *contract) {
		s, e, open := c.stuck(t)
		for name, wait := range map[string]func(context.Context) error{
			"Stream.Synchronize": s.Synchronize, "Event.Synchronize": e.Synchronize,
		} {
			endsInTime(t, name, wait)
			ended, cancel := context.WithCancel(background)
			cancel()
			var err error
			within(t, name+" with a context that has ended", func() { err = wait(ended) })
			assert.ErrorIs(t, err, context.Canceled, name)
		}
		open()
		within(t, "the work that was waited for", func() { check(s.Synchronize(background)) })
		assert.True(t, must(e.Query()))
	}},
	{"a context ends a wait for an event that others wait for", func(t T, c *contract) {
		_, e, open := c.stuck(t)
		stays := make(chan error, 2)
		go func() { stays <- e.Synchronize(background) }()
		long, cancel := context.WithTimeout(background, time.Minute)
		defer cancel()
		go func() { stays <- e.Synchronize(long) }()
		endsInTime(t, "Event.Synchronize", e.Synchronize)
		assert.Empty(t, stays, "the others still wait")
		open()
		for range 2 {
			within(t, "the others", func() { check(<-stays) })
		}
	}},
}

// endedContexts are a context that was cancelled, and one that has expired.
func endedContexts() []context.Context {
	cancelled, cancel := context.WithCancel(background)
	cancel()
	expired, cancel := context.WithTimeout(background, 0)
	cancel()
	return []context.Context{cancelled, expired}
}

// refused checks that a call answered the error of its context, and nothing else.
func refused(t T, ctx context.Context, err error, nothing bool, what string) {
	t.Helper()
	assert.ErrorIs(t, err, ctx.Err(), what)
	assert.True(t, nothing, "%s answered something beside the error", what)
}

// endsInTime calls f with a context that ends while f waits.
func endsInTime(t T, what string, f func(context.Context) error) {
	t.Helper()
	assert.ErrorIs(t, inTime(t, what, f), context.DeadlineExceeded, what)
}

// inTime returns the error of f, which is called with a context that ends soon, and returns soon after that.
func inTime(t T, what string, f func(context.Context) error) (err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(background, limit)
	defer cancel()
	var late time.Duration
	within(t, what, func() {
		err = f(ctx)
		deadline, _ := ctx.Deadline()
		late = time.Since(deadline)
	})
	assert.Less(t, late, maxDelay, what)
	return err
}
