package devicetest

import (
	"errors"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/device"
)

// functionRules are about functions of AfterWork and OnComplete, which may do anything.
var functionRules = []rule{
	{"a function that blocks holds up no other", func(t T, c *contract) {
		const blocked = 4
		s, e, open := c.stuck(t)
		over := make(chan struct{})
		end := sync.OnceFunc(func() { close(over) })
		t.Cleanup(end)
		entered, left := make(chan struct{}, 2*blocked), make(chan struct{}, 2*blocked)
		block := func() {
			entered <- struct{}{}
			<-over
			left <- struct{}{}
		}
		for range blocked {
			e.OnComplete(block)
			c.AfterWork(block)
		}
		open()
		received(t, "the first function", entered)
		called := make(chan struct{}, 2)
		within(t, "new functions, memory and streams", func() {
			c.AfterWork(func() { called <- struct{}{} })
			check(s.Record(e))
			e.OnComplete(func() { called <- struct{}{} })
			check(oneRound(c, 1<<20, 3))
		})
		received(t, "one more function", called)
		received(t, "and another", called)
		end()
		for range 2 * blocked {
			received(t, "the end of a function that was blocked", left)
		}
	}},
	{"a function may allocate, and wait for the device", func(t T, c *contract) {
		_, e, open := c.stuck(t)
		results := make(chan error, 2)
		work := func() { results <- oneRound(c, 1<<20, 5) }
		e.OnComplete(work)
		c.AfterWork(work)
		open()
		for range 2 {
			within(t, "a function that allocates and waits", func() { check(<-results) })
		}
	}},
	{"a function that panics ends nothing but itself", func(t T, c *contract) {
		c.endsOnlyItself(t, func() { panic(errors.New("thrown by a rule of the contract")) })
	}},
	{"a function that ends its goroutine ends nothing but itself", func(t T, c *contract) {
		c.endsOnlyItself(t, runtime.Goexit)
	}},
	{"each function is called once", func(t T, c *contract) {
		const functions = 100
		free := c.stream(t)
		s, _, open := c.stuck(t)
		var calls [2 * functions]atomic.Int32
		called := make(chan struct{}, 10*len(calls))
		function := func(i int) func() {
			return func() { calls[i].Add(1); called <- struct{}{} }
		}
		for i := range functions {
			on := []device.Stream{free, s}[i%2]
			e := c.event(t)
			check(on.Record(e))
			e.OnComplete(function(2 * i))
			c.AfterWork(function(2*i + 1))
			if i%3 == 0 {
				check(e.Close()) // before it is complete, or after
			}
			if i == functions/2 {
				open()
			}
		}
		for range calls {
			received(t, "a function", called)
		}
		fence := make(chan struct{})
		c.AfterWork(func() { close(fence) })
		received(t, "a function behind the others", fence)
		for i := range calls {
			assert.EqualValues(t, 1, calls[i].Load(), "function %d", i)
		}
	}},
}

// endsOnlyItself calls a function that does not return, by every way, and others around it.
func (c *contract) endsOnlyItself(t T, f func()) {
	const bad = 5
	before := int64(0)
	if c.panics != nil {
		before = c.panics()
	}
	_, e, open := c.stuck(t)
	called := make(chan struct{}, 2*bad)
	for range bad {
		e.OnComplete(f)
		e.OnComplete(func() { called <- struct{}{} })
		c.AfterWork(f)
		c.AfterWork(func() { called <- struct{}{} })
	}
	open()
	for range 2 * bad {
		received(t, "the other functions", called)
	}
	within(t, "work afterwards", func() { check(oneRound(c, 1<<20, 7)) })
	if c.panics == nil {
		return
	}
	within(t, "the count of functions that did not return", func() {
		for c.panics() < before+2*bad {
			runtime.Gosched()
		}
	})
	assert.Equal(t, before+2*bad, c.panics())
}
