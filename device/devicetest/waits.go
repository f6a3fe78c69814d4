package devicetest

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// manyThreads are more than a device may start for waits, however many there are.
const manyThreads = 200

// heldThreadRules count the threads of the operating system that waits cost.
var heldThreadRules = []rule{
	{"waits that are given up keep no threads", func(t T, c *contract) {
		waits, at := 2000, 100 // at once
		if !testing.Short() && !c.CPUAccessible() {
			waits = 20_000
		}
		s, e, open := c.stuck(t)
		before := threads()
		var wrong sync.Map
		within(t, "the waits", func() {
			var all sync.WaitGroup
			for g := range at {
				all.Go(func() {
					wait := []func(context.Context) error{s.Synchronize, e.Synchronize}[g%2]
					for i := range waits / at {
						if threads()-before > manyThreads {
							return // the rule is broken; thousands more would end the process
						}
						ctx, cancel := context.WithTimeout(background, time.Duration(i%10)*50*time.Microsecond)
						if err := wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
							wrong.Store(fmt.Sprint(err), true)
						}
						cancel()
					}
				})
			}
			all.Wait()
		})
		wrong.Range(func(err, _ any) bool { t.Errorf("a wait returned %v", err); return true })
		assert.Less(t, threads()-before, manyThreads, "threads")
		open()
		within(t, "the work", func() { check(s.Synchronize(background)) })
	}},
	{"waits at once share threads", func(t T, c *contract) {
		const waits = 500
		s, e, open := c.stuck(t)
		before := threads()
		results := make(chan error, waits)
		begun := make(chan struct{}, waits)
		long, cancel := context.WithTimeout(background, time.Minute)
		defer cancel()
		for i := range waits {
			wait := []func(context.Context) error{s.Synchronize, e.Synchronize}[i%2]
			ctx := background
			if i%5 == 0 {
				ctx = long
			}
			go func() {
				begun <- struct{}{}
				results <- wait(ctx)
			}()
		}
		for range waits {
			received(t, "the beginning of a wait", begun)
		}
		within(t, "work meanwhile", func() { check(oneRound(c, 1000, 1)) })
		time.Sleep(100 * time.Millisecond) // in which waits that block in the driver take their threads
		assert.Less(t, threads()-before, manyThreads, "threads")
		assert.Empty(t, results, "waits that returned")
		open()
		for range waits {
			within(t, "a wait", func() { check(<-results) })
		}
	}},
}

// threads is how many threads this process has made.
func threads() int { return pprof.Lookup("threadcreate").Count() }
