package gpu

import (
	"fmt"
	"log"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// callbacks runs functions of callers: of AfterWork and OnComplete, which are release
// callbacks above all. They may block for any time, panic, or end their goroutine. One
// goroutine runs them while they return; another one is started each time that none has
// returned for a millisecond. Above 64 goroutines that time grows with their number,
// because a function that blocks in C (for Python's lock, say) keeps an OS thread.
type callbacks struct {
	mu       sync.Mutex
	queue    []func()
	workers  int // that are running or about to
	returned int // functions, ever
	watched  bool
}

const (
	maxWorkers = 1024
	stall      = time.Millisecond // until another worker is started
	manyStalls = 64               // workers, above which that time grows with their number
)

// calls are those of the process.
var calls callbacks

// run calls f on another goroutine. f does not panic; see [guard.call].
func (c *callbacks) run(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, f)
	switch {
	case c.workers == 0:
		c.workers++
		go c.work()
	case !c.watched:
		c.watched = true
		go c.watch()
	}
}

func (c *callbacks) work() {
	ended := false
	defer func() {
		if !ended { // the function has ended the goroutine
			c.mu.Lock()
			c.returned++
			c.mu.Unlock()
			go c.work()
		}
	}()
	for {
		f := c.next()
		if f == nil {
			ended = true
			return
		}
		f()
		c.mu.Lock()
		c.returned++
		c.mu.Unlock()
	}
}

// next takes a function from the queue, or ends the worker.
func (c *callbacks) next() func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		c.queue = nil
		c.workers--
		return nil
	}
	f := c.queue[0]
	c.queue[0] = nil
	c.queue = c.queue[1:]
	return f
}

// watch starts workers while functions wait and none returns. It ends when none waits.
func (c *callbacks) watch() {
	for {
		c.mu.Lock()
		if len(c.queue) == 0 {
			c.watched = false
			c.mu.Unlock()
			return
		}
		before, workers := c.returned, c.workers
		c.mu.Unlock()
		time.Sleep(max(stall, stall*time.Duration(workers)/manyStalls))
		c.mu.Lock()
		if len(c.queue) > 0 && c.returned == before && c.workers < maxWorkers {
			c.workers++
			go c.work()
		}
		c.mu.Unlock()
	}
}

// guard calls functions of callers on goroutines of this module.
type guard struct {
	device fmt.Stringer // for the log
	panics atomic.Int64
}

// call calls f, and done however f ends. A panic is logged, as it has no caller that could
// recover from it, and counted; so is the end of the goroutine (runtime.Goexit).
func (g *guard) call(f, done func()) {
	defer done()
	returned := false
	defer func() {
		if returned {
			return
		}
		g.panics.Add(1)
		if v := recover(); v != nil {
			log.Printf("cuda: %s: panic in a function called after work of the GPU: %v\n%s", g.device, v, debug.Stack())
		}
	}()
	f()
	returned = true
}
