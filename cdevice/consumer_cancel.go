package cdevice

import (
	"time"

	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// cancel calls the producer's cancel, unless it has reported the end or an error.
func (c *consumer) cancel() {
	select {
	case c.calling <- struct{}{}:
	case <-c.released: // the running call may not return
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

// settle is called at the end of the last callback before release, after which no call of the
// producer begins, and waits for a running one. A producer that holds in release a lock that its
// request takes does not hold that lock yet: the call can return here, and release need not wait
// for it. A producer that serves calls on this very thread can do so after settle has lost
// patience.
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

// losePatience ends the wait for a producer that has called release and does not return from
// request or cancel. It drops the ready tasks, since the goroutine that calls cancel may never get
// to them.
func (c *consumer) losePatience() {
	c.mu.Lock()
	stopped := c.stopped
	c.mu.Unlock()
	if stopped {
		c.drop()
		c.emptied()
	}
	c.gone()
}
