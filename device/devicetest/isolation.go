package devicetest

import (
	"context"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
)

// isolationRules need a stream that is held back: it stands for one that a program forgot,
// or whose work takes minutes. Everything that does not come after that work goes on.
var isolationRules = []rule{
	isolated("allocations and frees", func(c *contract, other device.Stream) {
		const n = 1 << 20
		for range 20 {
			m := must(c.Allocate(background, n, other))
			check(c.Memset(m.Ptr(), 1, n, other))
			check(m.Free(other))
		}
		check(other.Synchronize(background))
	}),
	isolated("frees behind an event", func(c *contract, other device.Stream) {
		const n = 1 << 20
		e, m := must(c.NewEvent()), must(c.Allocate(background, n, other))
		check(c.Memset(m.Ptr(), 1, n, other))
		check(other.Record(e))
		check(m.FreeAfter(e))
		check(e.Close())
	}),
	isolated("streams and events that are made and closed", func(c *contract, _ device.Stream) {
		s, e := must(c.NewStream()), must(c.NewEvent())
		check(s.Record(e))
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		for _, wait := range []func(context.Context) error{e.Synchronize, s.Synchronize} {
			check(wait(background))
			check(wait(ctx))
		}
		check(e.Close())
		check(s.Close())
	}),
	isolated("functions behind an event", func(c *contract, other device.Stream) {
		e := must(c.NewEvent())
		check(other.Record(e))
		called := make(chan struct{})
		e.OnComplete(func() { close(called) })
		<-called
		check(e.Close())
	}),
	{"memory that is freed behind held work is not given out before the work is done", func(t T, c *contract) {
		const rounds = 4
		frees := map[string]func(m device.Memory, s device.Stream){
			"Free": func(m device.Memory, s device.Stream) { check(m.Free(s)) },
			"FreeAfter": func(m device.Memory, s device.Stream) {
				e := must(c.NewEvent())
				check(s.Record(e))
				check(m.FreeAfter(e))
				check(e.Close())
			},
		}
		for name, free := range frees {
			for _, n := range []int{100, 4096, 1 << 20} {
				other := c.stream(t)
				var doomed, fresh []device.Memory
				for range rounds {
					doomed = append(doomed, c.owned(t, int64(n), nil))
				}
				s, _, open := c.stuck(t)
				for _, m := range doomed {
					check(c.Memset(m.Ptr(), 0xdd, int64(n), s))
					within(t, name, func() { free(m, s) })
				}
				for i := range 2 * rounds { // one of them would have the memory, if it were free
					within(t, "an allocation meanwhile", func() {
						m := must(c.Allocate(background, int64(n), other))
						fresh = append(fresh, m)
						check(c.Memset(m.Ptr(), byte(i), int64(n), other))
					})
				}
				within(t, "the work on them", func() { check(other.Synchronize(background)) })
				open()
				check(s.Synchronize(background))
				for i, m := range fresh {
					assert.Equal(t, repeated(n, byte(i)), c.read(t, m.Ptr(), n, other), "%s: %d bytes", name, n)
					assert.NoError(t, m.Free(other))
				}
			}
		}
	}},
}

// isolated is the rule that f, which works on another stream, ends while a stream is held.
func isolated(what string, f func(c *contract, other device.Stream)) rule {
	return rule{"a held stream holds up no others: " + what, func(t T, c *contract) {
		other := c.stream(t)
		c.stuck(t)
		within(t, what, func() { f(c, other) })
	}}
}

// stuck returns a stream that is held back with work on it, and an event behind the work.
// It goes on when open is called, at the latest before cleanups that were registered
// earlier run.
func (c *contract) stuck(t T) (s device.Stream, e device.Event, open func()) {
	t.Helper()
	const n = 4096
	m := c.allocate(t, n)
	s, e = c.stream(t), c.event(t)
	open = c.held(t, s)
	check(c.Memset(m.Ptr(), 7, n, s))
	check(s.Record(e))
	return s, e, open
}

// copyStreamRules are about device.CopyStreamer.
var copyStreamRules = []rule{
	{"a copy stream that waits holds up no other", func(t T, c *contract) {
		const n = 1000
		a, b := c.allocate(t, n), c.allocate(t, n)
		_, e, open := c.stuck(t)
		waiting := must(c.CopyStream())
		check(waiting.WaitEvent(e))
		check(c.Memset(a.Ptr(), 1, n, waiting))
		for range 10 {
			within(t, "a copy on another copy stream", func() {
				s := must(c.CopyStream())
				check(c.Memset(b.Ptr(), 2, n, s))
				check(s.Synchronize(background))
				check(s.Close())
			})
		}
		check(waiting.Close()) // while it has work
		within(t, "a copy stream made after that one was closed", func() {
			s := must(c.CopyStream())
			check(s.Synchronize(background))
			check(s.Close())
		})
		open()
		quiet(c.Device)
		assert.Equal(t, repeated(n, 1), c.read(t, a.Ptr(), n, c.stream(t)))
	}},
}
