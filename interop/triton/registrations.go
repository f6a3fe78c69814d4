package triton

import (
	"context"
	"weak"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// registrations are the regions that the server of a client has, by name, as far as the client knows: the last Register of each has
// succeeded, and no Unregister was sent since. It does not retain them.
type registrations map[string]weak.Pointer[Region]

func (n registrations) has(r *Region) bool { return n[r.name] == weak.Make(r) }

// noteRegistered records that the server has a region. One that had the name before has it no more.
func (c *Client) noteRegistered(r *Region) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.registered[r.name] = weak.Make(r)
}

// noteUnregistered records that the server may not have a region, and reports whether it had it.
func (c *Client) noteUnregistered(r *Region) (had bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if had = c.registered.has(r); had {
		delete(c.registered, r.name)
	}
	return had
}

// noteRegister records how a Register of a region has ended: the server has opened it, or refused that, or may have opened it.
func (c *Client) noteRegister(ctx context.Context, r *Region, registered, refused bool) {
	r.noteOpen(c, !refused)
	switch {
	case registered:
		c.noteRegistered(r)
	case refused:
		c.checkRegistered(ctx, r.name)
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.registered, r.name) // mutant: deleted
	}
}

// checkRegistered asks the server whether it has the region that had a name, after it has refused a Register of the name: it may
// have been started anew, and another process may have registered the name.
func (c *Client) checkRegistered(ctx context.Context, name string) {
	c.mu.Lock()
	r := c.registered[name].Value()
	c.mu.Unlock()
	if r == nil {
		return
	}
	if listed, err := c.listed(ctx, r.entry()); err != nil || listed != itself { // mutant: never
		c.noteUnregistered(r)
	}
}

// isReplaced reports whether the server has another region of this client under the name of a region.
func (c *Client) isReplaced(r *Region) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, named := c.registered[r.name]
	return named && !c.registered.has(r)
}

// notRegistered returns the error about a region of a request that the client has not registered.
func notRegistered(c *Client, r *Region) error {
	if r.isClosed() {
		return fielderr.New(opInfer, r.field(), nil, nil, fielderr.ErrReleased)
	}
	got, want := "not registered with this client", "Register first; UnregisterName frees a name that an earlier process has left"
	switch here, elsewhere := r.openAt(c); {
	case here:
		got, want = "of a Register or Unregister that has failed", "Unregister and Register"
	case elsewhere:
		got, want = "registered with another client only", "Register with this client first, or a request of that client"
	}
	return fielderr.Invalid(opInfer, r.field(), fielderr.Text(got), want)
}
