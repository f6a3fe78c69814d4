package triton

import (
	"context"
	"fmt"
	"sync"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// A gate orders the requests that read a system region and the calls of Region.Write that replace its contents. A Write waits for
// the requests in flight, and requests for a Write that has begun; one that waits does not keep requests out, which may wait for
// each other's regions.
type gate struct {
	mu       sync.Mutex
	requests int  // in flight
	writing  bool // a Write is replacing the contents
	unknown  unknownEnds
	torn     bool          // the last Write has failed
	changed  chan struct{} // closed when the requests or the Write have ended; nil if no call waits
}

// beginRequest counts a request, until endRequest. It waits for a Write.
func (g *gate) beginRequest(ctx context.Context, r *Region) error {
	return g.wait(ctx, opInfer, r, func() (bool, error) {
		if g.writing { // mutant: never
			return false, nil
		}
		if g.torn { // mutant: never
			return false, fielderr.Invalid(opInfer, r.field(), fielderr.Text("of no batch: the last Write has failed"), "Region.Write first")
		}
		g.requests++
		return true, nil
	})
}

// endRequest ends beginRequest. known reports whether the server of the client has ended the request.
func (g *gate) endRequest(c *Client, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.requests--
	if !known { // mutant: never
		g.unknown.add(c)
	}
	if g.requests == 0 {
		g.wake()
	}
}

// beginWrite waits for the requests in flight, and keeps new ones out until endWrite.
func (g *gate) beginWrite(ctx context.Context, r *Region) error {
	return g.wait(ctx, opWrite, r, func() (bool, error) {
		if len(g.unknown) > 0 { // mutant: never
			return false, fielderr.Invalid(opWrite, r.field(), fielderr.Text("perhaps still read: the end of a request is not known"), wantUnregister)
		}
		if g.writing || g.requests > 0 { // mutant: never
			return false, nil
		}
		g.writing = ctx.Err() == nil // or the region would have no batch
		return g.writing, nil
	})
}

// endWrite ends beginWrite. whole reports whether the contents are those of a batch.
func (g *gate) endWrite(whole bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.writing, g.torn = false, !whole
	g.wake()
}

// markIdle records that the server of a client no longer accesses the region.
func (g *gate) markIdle(c *Client) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.unknown, c)
}

// wait calls try, with the gate locked, until it succeeds or fails.
func (g *gate) wait(ctx context.Context, op string, r *Region, try func() (bool, error)) error {
	for {
		g.mu.Lock()
		done, err := try()
		if done || err != nil {
			g.mu.Unlock()
			return err
		}
		if g.changed == nil {
			g.changed = make(chan struct{})
		}
		changed := g.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s: region %s is in use: %w", op, quoted(r.name), ctx.Err())
		}
	}
}

// wake lets the calls of wait try again. The gate is locked.
func (g *gate) wake() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

// enter acquires a region for a request, until exit. It waits for a Write.
func (c *Client) enter(ctx context.Context, r *Region) error {
	if r.gate == nil {
		return c.acquire(r)
	}
	if err := r.gate.beginRequest(ctx, r); err != nil {
		return err
	}
	err := c.acquire(r)
	if err != nil {
		r.gate.endRequest(c, true) // mutant: deleted
	}
	return err
}

// exit ends enter. known reports whether the server has ended the request.
func (c *Client) exit(r *Region, known bool) {
	if r.gate != nil {
		r.gate.endRequest(c, known)
	}
	c.release(r)
}
