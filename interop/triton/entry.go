package triton

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// An entry is memory that a server has registered under a name.
type entry struct {
	kind kind
	name string
	same func(path string, status []byte) (bool, error) // reports whether a message RegionStatus is of that memory
}

// entry returns the memory of the region, under its name.
func (r *Region) entry() entry { return entry{r.kind(), r.name, r.isSame} }

// A kind is the beginning of Triton's names of methods and messages about a kind of memory. A name is that of one region, of any kind.
type kind string

const (
	systemMemory kind = "System"
	cudaMemory   kind = "Cuda"
)

func (k kind) method(name string) string { return string(k) + "SharedMemory" + name }

func (r *Region) kind() kind {
	if r.object != nil {
		return systemMemory
	}
	return cudaMemory
}

// close unregisters an entry by request, which is called until it returns true, and waits until the server has closed it.
func (c *Client) close(ctx context.Context, e entry, request func() (agreed bool, err error)) error {
	if err := poll(ctx, e.name, request); err != nil {
		return err
	}
	return poll(ctx, e.name, func() (bool, error) { return c.isClosed(ctx, e) })
}

// requestClose asks the server to unregister an entry, and reports whether the server has agreed to. It does not ask for the memory of
// others.
func (c *Client) requestClose(ctx context.Context, e entry) (agreed bool, err error) {
	listed, err := c.listed(ctx, e)
	if err != nil {
		return false, err
	}
	if listed == another { // mutant: never
		return true, nil
	}
	_, err = c.invoke(ctx, e.kind.method("Unregister"), nameMessage(e.name))
	// Up to 24.11: "Cannot unregister shared memory region 'x', it is currently in use."
	if status.Code(err) == codes.Internal && strings.Contains(err.Error(), "currently in use") { // mutant: never
		return false, nil
	}
	return true, err
}

// isClosed reports whether the server does not list an entry.
func (c *Client) isClosed(ctx context.Context, e entry) (closed bool, err error) {
	listed, err := c.listed(ctx, e)
	return err == nil && listed != itself, err
}

// listed returns what the server lists under the name of an entry.
func (c *Client) listed(ctx context.Context, e entry) (listing, error) {
	reply, err := c.invoke(ctx, e.kind.method("Status"), nameMessage(e.name))
	if status.Code(err) == codes.NotFound {
		return absent, nil
	}
	if err != nil {
		return absent, err
	}
	return parseListing(reply, e)
}

// The pauses between polls of a region. Triton has no call that waits.
const (
	firstPause = time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// poll calls query until it returns true or an error, or until ctx, that of a call which unregisters a name, has ended.
func poll(ctx context.Context, name string, query func() (bool, error)) error {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		if done, err := query(); err != nil || done {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return unregisterEnded(ctx, name)
		}
	}
}

// unregisterEnded returns the error of a call which unregisters a name, after the end of its context.
func unregisterEnded(ctx context.Context, name string) error {
	return fmt.Errorf("triton: unregister region %s: %w", quoted(name), ctx.Err())
}
