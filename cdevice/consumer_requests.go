package cdevice

import (
	"time"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/items"
)

// Calls of a consumer to its producer. They are made in on_schema, and later on goroutines of their
// own: the goroutine that takes a batch or closes the stream goes on where the producer does not return.

// patience is how long a wait for the producer is that may be in vain: longer than any call takes
// that is not held up, by far.
const patience = time.Second

// request has n more batches requested, unless the stream has ended.
func (c *consumer) request(n int64) {
	c.mu.Lock()
	c.room += n
	begun := c.asking
	c.asking = true
	c.mu.Unlock()
	if begun {
		return
	}
	items.Background(func() {
		c.calling <- struct{}{}
		defer func() { <-c.calling }()
		c.ask()
	})
}

// ask asks for batches as long as there is room for some. calling is held, and asking is set.
func (c *consumer) ask() {
	for {
		p, n := c.wish()
		if p == nil {
			return
		}
		bridge.CallRequest(p, n, c.word)
	}
}

// wish returns what the next request is for, or nil where there is none to make.
func (c *consumer) wish() (*abi.ArrowAsyncProducer, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.stopped || c.room == 0 {
		c.asking = false
		return nil, 0
	}
	n := c.room
	c.room = 0
	c.wanted += n
	return c.producer, n
}

// cancel tells the producer that it is not wanted any more, unless it has told the end or an error.
func (c *consumer) cancel() {
	select {
	case c.calling <- struct{}{}:
	case <-c.released: // the call that is under way may not return
		return
	}
	defer func() { <-c.calling }()
	c.mu.Lock()
	p := c.producer
	if c.ended {
		p = nil
	}
	c.mu.Unlock()
	if p != nil {
		bridge.CallCancel(p, c.word)
	}
}

// settle ends the callbacks that release follows, after which no call of the producer begins: it
// waits for one that is under way. A producer that holds a lock while it calls release, which request
// takes, does not hold it yet, so that the call can return, and release has none to wait for. A
// producer that answers calls with the thread that this is does so once settle has lost patience.
func (c *consumer) settle() {
	if bridge.Calling(c.word) {
		return
	}
	select {
	case c.calling <- struct{}{}:
		<-c.calling
		return
	default:
	}
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case c.calling <- struct{}{}:
		<-c.calling
	case <-t.C:
	}
}

// Release is the last callback. When it returns, the producer may be gone: it waits for a
// call of it that is under way, except one that release was called from inside of.
func (c *consumer) Release() {
	c.mu.Lock()
	if !c.ended && !c.stopped && c.err == nil {
		c.err = errNoEnd
	}
	c.ended, c.producer = true, nil
	close(c.released)
	c.tell()
	c.mu.Unlock()
	if !bridge.Calling(c.word) {
		impatient := time.AfterFunc(patience, func() {
			items.Goroutines.Add(1)
			defer items.Goroutines.Add(-1)
			c.losePatience()
		})
		c.calling <- struct{}{}
		impatient.Stop()
		defer func() { <-c.calling }()
	}
	c.pins.Unpin()
	c.origin.Remove()
	asyncStreams.Add(-1) // before Close returns
	c.gone()
}
