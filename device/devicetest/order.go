package devicetest

import (
	"context"
	"errors"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
)

var orderRules = []rule{
	{"work on a stream is done in order", func(t T, c *contract) {
		const n = 512
		m := c.allocate(t, n)
		settle(t, c.Device)
		s := c.stream(t)
		for v := range 50 {
			check(c.Memset(m.Ptr(), byte(v), n, s))
		}
		assert.Equal(t, repeated(n, 49), c.read(t, m.Ptr(), n, s))
	}},
	{"no stream is the default stream", func(t T, c *contract) {
		const n = 512
		m := c.owned(t, n, nil)
		got := pin(t, make([]byte, n))
		assert.NoError(t, c.Memset(m.Ptr(), 7, n, nil))
		assert.NoError(t, c.Copy(one(got.at(0), m.Ptr(), n), nil))
		assert.NoError(t, m.Free(nil))
		settle(t, c.Device)
		assert.Equal(t, repeated(n, 7), []byte(got))
	}},
	{"an event that was never recorded is complete", func(t T, c *contract) {
		e := c.event(t)
		assert.True(t, must(e.Query()))
		assert.NoError(t, e.Synchronize(background))
		assert.NoError(t, c.stream(t).WaitEvent(e))
	}},
	{"an event orders work across streams", func(t T, c *contract) {
		const n = 1 << 12
		a, b := c.allocate(t, n), c.allocate(t, n)
		settle(t, c.Device)
		producer, consumer := c.stream(t), c.stream(t)
		e := c.event(t)
		for round := range 20 {
			check(c.Memset(a.Ptr(), byte(round), n, producer))
			check(producer.Record(e))
			check(consumer.WaitEvent(e))
			check(c.Copy(one(b.Ptr(), a.Ptr(), n), consumer))
			check(consumer.Record(e))
			check(producer.WaitEvent(e))
			assert.Equal(t, repeated(n, byte(round)), c.read(t, b.Ptr(), n, consumer))
			check(e.Synchronize(background))
			assert.True(t, must(e.Query()))
		}
	}},
	{"memory allocated in stream order is ready on that stream", func(t T, c *contract) {
		const n = 4096
		s := c.stream(t)
		m := c.owned(t, n, s)
		assert.NoError(t, c.Memset(m.Ptr(), 3, n, s))
		assert.Equal(t, repeated(n, 3), c.read(t, m.Ptr(), n, s))
		assert.NoError(t, m.Free(s))
	}},
	{"foreign handles are borrowed", func(t T, c *contract) {
		s, e := c.stream(t), c.event(t)
		borrowedStream := must(c.WrapStream(s.Handle()))
		assert.Equal(t, s.Handle(), borrowedStream.Handle())
		borrowedEvent := must(c.WrapEvent(e.Handle()))
		assert.Equal(t, e.Handle(), borrowedEvent.Handle())
		check(borrowedStream.Record(borrowedEvent))
		check(borrowedEvent.Synchronize(background))
		check(borrowedStream.Close())
		check(borrowedEvent.Close())
		check(s.Record(e)) // the owners' still live
		check(s.Synchronize(background))
	}},
	{"closing twice is allowed", func(t T, c *contract) {
		s := must(c.NewStream())
		assert.NoError(t, s.Close())
		assert.NoError(t, s.Close())
		e := must(c.NewEvent())
		assert.NoError(t, e.Close())
		assert.NoError(t, e.Close())
	}},
	{"a context ends a wait that lasts", func(t T, c *contract) {
		ctx, cancel := context.WithCancel(background)
		s, e := c.stream(t), c.event(t)
		check(s.Record(e))
		check(s.Synchronize(ctx))
		check(e.Synchronize(ctx))
		cancel()
		// A wait that is over may be reported as that, or as cancelled.
		for _, err := range []error{s.Synchronize(ctx), e.Synchronize(ctx)} {
			if err != nil {
				assert.ErrorIs(t, err, context.Canceled)
			}
		}
	}},
	{"a function runs after the work so far", func(t T, c *contract) {
		const n = 1 << 16
		m := c.allocate(t, n)
		settle(t, c.Device)
		s, e := c.stream(t), c.event(t)
		for range 10 {
			check(c.Memset(m.Ptr(), 1, n, s))
		}
		check(s.Record(e))
		assert.NoError(t, completeAfterWork(c, e)())
	}},
}

// pendingRules need a stream that is held back. They enqueue memsets on it: copies that have host
// memory at both ends, or memory that is not page-locked at one, may wait for the stream.
var pendingRules = []rule{
	{"held work is not done, and what waits for it is not either", func(t T, c *contract) {
		const n = 1024
		a, b := c.allocate(t, n), c.allocate(t, n)
		c.write(t, a.Ptr(), repeated(n, 1))
		c.write(t, b.Ptr(), repeated(n, 1))
		producer, consumer, third := c.stream(t), c.stream(t), c.stream(t)
		e, end := c.event(t), c.event(t)
		open := c.held(t, producer)
		check(c.Memset(a.Ptr(), 2, n, producer))
		check(producer.Record(e))
		check(consumer.WaitEvent(e)) // returns at once
		check(c.Memset(b.Ptr(), 3, n, consumer))
		check(consumer.Record(end))
		for _, pending := range []device.Event{e, end} {
			assert.False(t, must(pending.Query()))
		}
		assert.Equal(t, repeated(n, 1), c.read(t, a.Ptr(), n, third), "a stream that waits for nothing goes ahead")
		assert.Equal(t, repeated(n, 1), c.read(t, b.Ptr(), n, third))
		open()
		check(end.Synchronize(background))
		assert.Equal(t, repeated(n, 2), c.read(t, a.Ptr(), n, third))
		assert.Equal(t, repeated(n, 3), c.read(t, b.Ptr(), n, third))
	}},
	{"a context ends a wait, and the work goes on", func(t T, c *contract) {
		const n = 1024
		m := c.allocate(t, n)
		s, e := c.stream(t), c.event(t)
		open := c.held(t, s)
		check(c.Memset(m.Ptr(), 5, n, s))
		check(s.Record(e))
		ctx, cancel := context.WithCancel(background)
		waits := make(chan error, 2)
		go func() { waits <- s.Synchronize(ctx) }()
		go func() { waits <- e.Synchronize(ctx) }()
		cancel()
		assert.ErrorIs(t, <-waits, context.Canceled)
		assert.ErrorIs(t, <-waits, context.Canceled)
		open()
		assert.Equal(t, repeated(n, 5), c.read(t, m.Ptr(), n, s))
	}},
	{"recording again does not move a wait", func(t T, c *contract) {
		first, second, consumer := c.stream(t), c.stream(t), c.stream(t)
		e := c.event(t)
		check(first.Record(e))
		check(consumer.WaitEvent(e))
		open := c.held(t, second)
		check(second.Record(e))
		check(consumer.Synchronize(background)) // waits for the first record only
		assert.False(t, must(e.Query()), "asks for the latest record")
		open()
		check(e.Synchronize(background))
	}},
	{"closing waits for nothing and loses nothing", func(t T, c *contract) {
		const n = 1024
		a := c.allocate(t, n)
		producer, consumer := c.stream(t), c.stream(t)
		e := c.event(t)
		open := c.held(t, producer)
		check(c.Memset(a.Ptr(), 9, n, producer))
		check(producer.Record(e))
		check(consumer.WaitEvent(e))
		check(producer.Close())
		check(e.Close())
		fresh := c.event(t)
		assert.True(t, must(fresh.Query()), "a new event was never recorded, whatever it was before")
		check(c.Memset(a.Ptr(), 8, n/2, consumer)) // after the other half
		open()
		assert.Equal(t, append(repeated(n/2, 8), repeated(n/2, 9)...), c.read(t, a.Ptr(), n, consumer))
	}},
	{"closing ends no wait", func(t T, c *contract) {
		s, e := c.stream(t), c.event(t)
		open := c.held(t, s)
		check(s.Record(e))
		ctx, cancel := context.WithCancel(background)
		cancelled := make(chan error, 2)
		go func() { cancelled <- e.Synchronize(ctx) }()
		go func() { cancelled <- s.Synchronize(ctx) }()
		cancel()
		assert.ErrorIs(t, <-cancelled, context.Canceled)
		assert.ErrorIs(t, <-cancelled, context.Canceled)
		assert.NoError(t, s.Close())
		assert.NoError(t, e.Close())
		assert.Error(t, s.Record(c.event(t)), "closed for its owner")
		open()
	}},
	{"a function runs only after held work", func(t T, c *contract) {
		s, e := c.stream(t), c.event(t)
		open := c.held(t, s)
		check(s.Record(e))
		result := completeAfterWork(c, e) // returns at once
		open()
		assert.NoError(t, result())
	}},
}

// completeAfterWork asks, after the work so far, whether e is complete. The result
// is an error if it was not.
func completeAfterWork(c *contract, e device.Event) (result func() error) {
	asked := make(chan error, 1)
	c.AfterWork(func() {
		done, err := e.Query()
		if err == nil && !done {
			err = errors.New("the function ran before the work was done")
		}
		asked <- err
	})
	return func() error { return <-asked }
}
