package hostcopy

import (
	"sync"
	"sync/atomic"
)

// crew is the goroutines that do numbered pieces of work together.
type crew struct {
	count   int
	work    func(i int) error
	next    atomic.Int64 // the first piece that no goroutine has begun
	results chan result  // has room for all: no goroutine waits for another one
}

type result struct {
	piece int
	err   error
}

// inOrder calls work for the pieces 0 to count-1 on so many goroutines, of which one is the caller's. That one calls
// done for each piece, in order, as soon as the piece and those before it are done. The first error ends the work.
// inOrder returns when the goroutines have ended.
func inOrder(goroutines, count int, work, done func(i int) error) error {
	if goroutines == 1 {
		for i := range count {
			if err := work(i); err != nil {
				return err
			}
			if err := done(i); err != nil {
				return err
			}
		}
		return nil
	}
	c := crew{count: count, work: work, results: make(chan result, count)}
	var others sync.WaitGroup
	for range goroutines - 1 {
		others.Go(c.help)
	}
	err := c.lead(done)
	c.next.Store(int64(count)) // nothing else begins
	others.Wait()
	return err
}

// one does the next piece of work, if there is one.
func (c *crew) one() (r result, ok bool) {
	i := int(c.next.Add(1)) - 1
	if i >= c.count {
		return result{}, false
	}
	return result{i, c.work(i)}, true
}

func (c *crew) help() {
	for {
		r, ok := c.one()
		if !ok {
			return
		}
		c.results <- r
	}
}

// lead does work, too, and calls done.
func (c *crew) lead(done func(i int) error) error {
	finished := make([]bool, c.count)
	for at := 0; at < c.count; {
		r := c.nextResult()
		if r.err != nil {
			return r.err
		}
		finished[r.piece] = true
		for ; at < c.count && finished[at]; at++ {
			if err := done(at); err != nil {
				return err
			}
		}
	}
	return nil
}

// nextResult returns that of another goroutine, or of a piece that it does itself.
func (c *crew) nextResult() result {
	select {
	case r := <-c.results:
		return r
	default:
	}
	if r, ok := c.one(); ok {
		return r
	}
	return <-c.results
}
