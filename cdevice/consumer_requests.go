package cdevice

import (
	"time"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/items"
)

// Calls of a consumer to its producer. They are made in on_schema, and later on a goroutine of their
// own, so that a producer that does not return does not block the goroutine that reads or closes
// the stream.

// patience bounds the waits for a producer that may never return. It is far longer than any call
// that is not blocked.
var patience = time.Second

// request requests n more batches, unless the stream has ended.
func (c *consumer) request(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.room += n
	if c.asking {
		return
	}
	c.asking = true
	if c.asks {
		c.roomy.Signal()
		return
	}
	c.asks = true
	items.Background(c.askInTurn)
}

// askInTurn is ask on a goroutine of its own, which lives until the stream ends: the stack of a new one would have to grow,
// and be copied, for each request.
func (c *consumer) askInTurn() {
	for c.waitForRoom() {
		c.calling <- struct{}{}
		c.ask()
		<-c.calling
	}
}

// waitForRoom returns when there are batches to request. It returns false once the stream has ended.
func (c *consumer) waitForRoom() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for !c.asking && !c.over() {
		c.roomy.Wait()
	}
	return !c.over()
}

// over reports whether the stream has ended, so that nothing is requested any more. mu is held.
func (c *consumer) over() bool { return c.ended || c.stopped }

// ask requests batches while there is room for some. The caller has filled calling and set asking.
func (c *consumer) ask() {
	for {
		p, n := c.wish()
		if p == nil {
			return
		}
		bridge.CallRequest(p, n, c.word)
	}
}

// wish returns the producer and count of the next request, or nil if there is none to make.
func (c *consumer) wish() (*abi.ArrowAsyncProducer, int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over() || c.room == 0 {
		c.asking = false
		return nil, 0
	}
	n := c.room
	c.room = 0
	c.wanted += n
	return c.producer, n
}

// Release is the last callback. The producer may be freed when it returns, so it waits for a
// running call of the producer, unless release was called from inside that call.
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
		stop := items.After(patience, c.losePatience)
		c.calling <- struct{}{}
		stop()
		defer func() { <-c.calling }()
	}
	c.pins.Unpin()
	c.origin.Remove()
	asyncStreams.Add(-1) // before Close returns
	c.gone()
}
