package cdevice

import (
	"time"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/items"
)

// Calls of a consumer to its producer. They are made in on_schema, and later on goroutines of their
// own, so that a producer that does not return does not block the goroutine that reads or closes
// the stream.

// patience bounds the waits for a producer that may never return. It is far longer than any call
// that is not blocked.
var patience = time.Second

// request requests n more batches, unless the stream has ended.
func (c *consumer) request(n int64) {
	c.mu.Lock()
	c.room += n
	begun := c.asking
	c.asking = true
	c.mu.Unlock()
	if begun {
		return
	}
	c.askLater()
}

// askInTurn is ask on a goroutine of its own.
func (c *consumer) askInTurn() {
	c.calling <- struct{}{}
	defer func() { <-c.calling }()
	c.ask()
}

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
	if c.ended || c.stopped || c.room == 0 {
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
