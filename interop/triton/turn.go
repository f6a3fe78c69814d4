package triton

import "context"

// A turn orders the calls of a client that register or unregister a name: each asks the server for as long as no other does, and
// then knows what its answers say of the name.
type turn struct {
	taken chan struct{} // has an element while a call has the turn
	calls int           // those that have it or wait for it
}

// takeTurn waits until no other call registers or unregisters a name, and keeps others waiting until done is called.
func (c *Client) takeTurn(ctx context.Context, name string) (done func(), err error) {
	// mutant: return func() {}, nil
	c.mu.Lock()
	t := c.turns[name]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		c.turns[name] = t
	}
	t.calls++
	c.mu.Unlock()
	select {
	case t.taken <- struct{}{}: // also if ctx has ended: the call sees that
	default:
		select {
		case t.taken <- struct{}{}:
		case <-ctx.Done():
			c.leaveTurn(name, t)
			return nil, ctx.Err()
		}
	}
	return func() { <-t.taken; c.leaveTurn(name, t) }, nil
}

func (c *Client) leaveTurn(name string, t *turn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.calls--; t.calls == 0 {
		delete(c.turns, name)
	}
}
