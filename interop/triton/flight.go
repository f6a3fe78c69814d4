package triton

import (
	"context"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// takeOff counts a request that has a region, and holds the region.
func (c *Client) takeOff(r *Region) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.flights[r]
	if f != nil && f.leaving > 0 {
		return fielderr.Invalid(opTriton, "Request.Region("+quoted(r.name)+")", fielderr.Text("being unregistered"), "a registered region")
	}
	if err := r.hold(); err != nil {
		return err
	}
	if f == nil {
		f = &flight{}
		c.flights[r] = f
	}
	f.requests++
	return nil
}

// touchDown ends takeOff.
func (c *Client) touchDown(r *Region) {
	c.mu.Lock()
	f := c.flights[r]
	f.requests--
	if f.requests == 0 && f.landed != nil {
		close(f.landed)
		f.landed = nil
	}
	c.forget(r, f)
	c.mu.Unlock()
	r.drop()
}

// leave keeps requests from beginning until the function that it returns is called.
func (c *Client) leave(r *Region) (stay func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.flights[r]
	if f == nil {
		f = &flight{}
		c.flights[r] = f
	}
	f.leaving++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		f.leaving--
		c.forget(r, f)
	}
}

// land waits until no request in flight has a region that is leaving.
func (c *Client) land(ctx context.Context, r *Region) error {
	c.mu.Lock()
	f := c.flights[r]
	if f.requests == 0 {
		c.mu.Unlock()
		return nil
	}
	if f.landed == nil {
		f.landed = make(chan struct{})
	}
	landed := f.landed
	c.mu.Unlock()
	select {
	case <-landed:
		return nil
	case <-ctx.Done():
		return fielderr.ContextError(ctx, "unregister region "+quoted(r.name))
	}
}

// forget drops the count of a region that nothing uses. c.mu is locked.
func (c *Client) forget(r *Region, f *flight) {
	if f.requests == 0 && f.leaving == 0 {
		delete(c.flights, r)
	}
}
