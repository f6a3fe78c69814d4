package devicetest

import (
	"context"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/device"
)

// isolationRules need a stream that is held back: it stands for one that a program forgot,
// or whose work takes minutes. Everything that does not come after that work goes on.
var isolationRules = []rule{
	isolated("allocations and frees", func(c *contract, other device.Stream) error {
		const n = 1 << 20
		for range 20 {
			m, err := c.Allocate(background, n, other)
			if err != nil {
				return err
			}
			if err := c.Memset(m.Ptr(), 1, n, other); err != nil {
				return err
			}
			if err := m.Free(other); err != nil {
				return err
			}
		}
		return other.Synchronize(background)
	}),
	isolated("frees behind an event", func(c *contract, other device.Stream) error {
		const n = 1 << 20
		e, err := c.NewEvent()
		if err != nil {
			return err
		}
		m, err := c.Allocate(background, n, other)
		if err != nil {
			return err
		}
		if err := c.Memset(m.Ptr(), 1, n, other); err != nil {
			return err
		}
		if err := other.Record(e); err != nil {
			return err
		}
		if err := m.FreeAfter(e); err != nil {
			return err
		}
		return e.Close()
	}),
	isolated("streams and events that are made and closed", func(c *contract, _ device.Stream) error {
		s, err := c.NewStream()
		if err != nil {
			return err
		}
		e, err := c.NewEvent()
		if err != nil {
			return err
		}
		if err := s.Record(e); err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		for _, wait := range []func(context.Context) error{e.Synchronize, s.Synchronize} {
			for _, ctx := range []context.Context{background, ctx} {
				if err := wait(ctx); err != nil {
					return err
				}
			}
		}
		if err := e.Close(); err != nil {
			return err
		}
		return s.Close()
	}),
	isolated("functions behind an event", func(c *contract, other device.Stream) error {
		e, err := c.NewEvent()
		if err != nil {
			return err
		}
		if err := other.Record(e); err != nil {
			return err
		}
		called := make(chan struct{})
		e.OnComplete(func() { close(called) })
		<-called
		return e.Close()
	}),
	{"memory that is freed behind held work is not given out before the work is done", func(t T, c *contract) {
		const rounds = 4
		frees := map[string]func(m device.Memory, s device.Stream) error{
			"Free": func(m device.Memory, s device.Stream) error { return m.Free(s) },
			"FreeAfter": func(m device.Memory, s device.Stream) error {
				e, err := c.NewEvent()
				if err != nil {
					return err
				}
				if err := s.Record(e); err != nil {
					return err
				}
				if err := m.FreeAfter(e); err != nil {
					return err
				}
				return e.Close()
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
					require.NoError(t, c.Memset(m.Ptr(), 0xdd, int64(n), s))
					within(t, name, func() error { return free(m, s) })
				}
				for i := range 2 * rounds { // one of them would have the memory, if it were free
					within(t, "an allocation meanwhile", func() error {
						m, err := c.Allocate(background, int64(n), other)
						if err != nil {
							return err
						}
						fresh = append(fresh, m)
						return c.Memset(m.Ptr(), byte(i), int64(n), other)
					})
				}
				within(t, "the work on them", func() error { return other.Synchronize(background) })
				open()
				require.NoError(t, s.Synchronize(background))
				for i, m := range fresh {
					assert.Equal(t, repeated(n, byte(i)), c.read(t, m.Ptr(), n, other), "%s: %d bytes", name, n)
					assert.NoError(t, m.Free(other))
				}
			}
		}
	}},
}

// isolated is the rule that f, which works on another stream, ends while a stream is held.
func isolated(what string, f func(c *contract, other device.Stream) error) rule {
	return rule{"a held stream holds up no others: " + what, func(t T, c *contract) {
		other := c.stream(t)
		c.stuck(t)
		within(t, what, func() error { return f(c, other) })
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
	require.NoError(t, c.Memset(m.Ptr(), 7, n, s))
	require.NoError(t, s.Record(e))
	return s, e, open
}

// copyStreamRules are about device.CopyStreamer.
var copyStreamRules = []rule{
	{"a copy stream that waits holds up no other", func(t T, c *contract) {
		const n = 1000
		a, b := c.allocate(t, n), c.allocate(t, n)
		_, e, open := c.stuck(t)
		waiting, err := c.CopyStream()
		require.NoError(t, err)
		require.NoError(t, waiting.WaitEvent(e))
		require.NoError(t, c.Memset(a.Ptr(), 1, n, waiting))
		for range 10 {
			within(t, "a copy on another copy stream", func() error {
				s, err := c.CopyStream()
				if err != nil {
					return err
				}
				if err := c.Memset(b.Ptr(), 2, n, s); err != nil {
					return err
				}
				if err := s.Synchronize(background); err != nil {
					return err
				}
				return s.Close()
			})
		}
		require.NoError(t, waiting.Close(), "while it has work")
		within(t, "a copy stream made after that one was closed", func() error {
			s, err := c.CopyStream()
			if err != nil {
				return err
			}
			if err := s.Synchronize(background); err != nil {
				return err
			}
			return s.Close()
		})
		open()
		quiet(c.Device)
		assert.Equal(t, repeated(n, 1), c.read(t, a.Ptr(), n, c.stream(t)))
	}},
}
