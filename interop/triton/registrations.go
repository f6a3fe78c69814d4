package triton

import (
	"context"
	"weak"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
)

// registrations are the regions that the server of a client has, by name, as far as the client knows: the last Register of each has
// succeeded, and no Unregister was sent since. It does not retain them.
type registrations map[string]weak.Pointer[Region]

func (n registrations) has(r *Region) bool { return n[r.name] == weak.Make(r) }

// noteRegister records whether the server has a region under its name, and reports whether it had it before. A region that had the name
// before has it no more.
func (c *Client) noteRegister(r *Region, registered bool) (was bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	was = c.registered.has(r)
	switch {
	case registered:
		c.registered[r.name] = weak.Make(r)
	case was:
		delete(c.registered, r.name)
	}
	return was
}

// isStillRegistered reports whether a region whose Register the server has refused with err is registered by a call before, as the server
// says: since then it may have been started anew, and another process may have registered the name.
func (c *Client) isStillRegistered(ctx context.Context, r *Region, err error) bool {
	c.mu.Lock()
	was := c.registered.has(r)
	c.mu.Unlock()
	if !was || status.Code(err) != codes.AlreadyExists {
		return false
	}
	listed, err := c.listed(ctx, r.entry())
	return err == nil && listed == itself
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
