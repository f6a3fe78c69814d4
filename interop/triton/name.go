package triton

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/protofield"
)

// checkRegionName checks the name of a region. It must be one that a URL has as it is, since Triton does not decode the
// names in paths of its HTTP API: by that, an escaped name is that of another region.
func checkRegionName(name string) error {
	escaped := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-._~", c)
	}
	if name == "" || name == "." || name == ".." || strings.ContainsFunc(name, escaped) {
		return fielderr.Invalid(opRegion, "name", quoted(name), `letters of ASCII, digits, "-", ".", "_" and "~", which paths of Triton's HTTP API do not escape`)
	}
	return nil
}

// UnregisterName makes the server close the memory that it has under a name, of either kind, so that Register can take the name over: one
// that an earlier process has left, as a process does that is killed. It does nothing if the name is not registered. As Unregister does,
// it waits for requests in flight that use the memory, until ctx ends.
//
// A program that still uses the name would get errors, and once it is registered again, the contents of the new region. So the name of
// system shared memory of a process of this user that lives is an error, and so is the name of a region that this client has registered:
// Unregister that. Of other memory, of CUDA or another library's, the caller has to know that no program uses it.
func (c *Client) UnregisterName(ctx context.Context, name string) error {
	if err := argument.Context("triton: UnregisterName", ctx); err != nil {
		return err
	}
	if err := checkName(name); err != nil { // the empty name stands for all regions
		return fielderr.During(opUnregister, err)
	}
	done, err := c.takeTurn(ctx, name)
	if err != nil {
		return unregisterEnded(ctx, name)
	}
	defer done()
	if err := c.free(name); err != nil {
		return err
	}
	for _, k := range []kind{systemMemory, cudaMemory} {
		found, err := c.closeName(ctx, k, name)
		if k == cudaMemory && status.Code(err) == codes.Unimplemented {
			return nil // the server has no GPU
		}
		if found || err != nil {
			return withRemedy(err)
		}
	}
	return nil
}

// free forgets the region that had a name. It must not be one that this client has registered.
func (c *Client) free(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.registered[name].Value() != nil {
		const want = "the name of no region that this client has registered: Unregister of the region"
		return fielderr.Invalid(opUnregister, "name", quoted(name), want)
	}
	delete(c.registered, name)
	return nil
}

// closeName makes the server close the memory of a kind under a name, and reports whether there is some.
func (c *Client) closeName(ctx context.Context, k kind, name string) (found bool, err error) {
	var first []byte
	e := entry{k, name, func(_ string, status []byte) (bool, error) { first = bytes.Clone(status); return true, nil }}
	listed, err := c.listed(ctx, e)
	if err != nil || listed == absent {
		return false, err
	}
	if err := checkAbandoned(k, name, first); err != nil {
		return true, err
	}
	e.same = func(_ string, status []byte) (bool, error) { return bytes.Equal(status, first), nil }
	return true, c.close(ctx, e, func() (bool, error) { return c.requestClose(ctx, e) })
}

// checkAbandoned returns an error if a message RegionStatus is of system shared memory whose process lives.
func checkAbandoned(k kind, name string, status []byte) error {
	if k != systemMemory {
		return nil
	}
	return eachField(k.method("StatusResponse")+".regions", status, func(f protofield.Field) error {
		if f.Number != 2 {
			return nil
		}
		if process, lives := ownerOf(string(f.Bytes)); lives {
			want := fmt.Sprintf("a name that a process has left: process %s lives, and has the memory", process)
			return fielderr.Invalid(opUnregister, "name", quoted(name), want)
		}
		return nil
	})
}
