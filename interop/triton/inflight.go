package triton

import (
	"context"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// A usage counts the requests in flight that use a region.
type usage struct {
	requests int
	leaving  bool          // during Unregister, when no request begins
	drained  chan struct{} // closed when the last request has ended; nil if no call waits for that
}

// acquire counts a request that uses a region, and holds the region until release.
func (c *Client) acquire(r *Region) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u := c.usages[r]; u != nil && u.leaving {
		return fielderr.Invalid(opInfer, r.field(), fielderr.Text("being unregistered"), "a registered region")
	}
	if !c.registered.has(r) { // mutant: never
		return notRegistered(c, r)
	}
	if err := r.hold(); err != nil {
		return err
	}
	c.use(r).requests++
	return nil
}

// release ends acquire.
func (c *Client) release(r *Region) {
	c.mu.Lock()
	u := c.usages[r]
	u.requests--
	if u.requests == 0 && u.drained != nil {
		close(u.drained)
		u.drained = nil
	}
	c.forget(r, u)
	c.mu.Unlock()
	r.drop()
}

// leave refuses new requests that use a region until the function that it returns is called. The caller has the turn of the name.
func (c *Client) leave(r *Region) (done func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.use(r)
	u.leaving = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		u.leaving = false
		c.forget(r, u)
	}
}

// drain waits until no request in flight uses a region, for which leave was called.
func (c *Client) drain(ctx context.Context, r *Region) error {
	c.mu.Lock()
	u := c.usages[r]
	if u.requests == 0 {
		c.mu.Unlock()
		return nil
	}
	if u.drained == nil {
		u.drained = make(chan struct{})
	}
	drained := u.drained
	c.mu.Unlock()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return unregisterEnded(ctx, r.name)
	}
}

// use returns the usage of a region, a new one if it has none. c.mu is locked.
func (c *Client) use(r *Region) *usage {
	u := c.usages[r]
	if u == nil {
		u = &usage{}
		c.usages[r] = u
	}
	return u
}

// forget removes the usage of a region that nothing uses. c.mu is locked.
func (c *Client) forget(r *Region, u *usage) {
	if u.requests == 0 && !u.leaving {
		delete(c.usages, r)
	}
}
