// Package refcount counts the references to an object.
package refcount

import (
	"fmt"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/live"
)

// Count is the reference count of one object. Retain after the last Release, and a Release without
// a reference, panic in every build: such bugs would otherwise drop a reference of another part of
// the program. A Count must not be copied.
type Count struct {
	refs   atomic.Int64 // and owned for each of those that have an owner
	kind   string
	origin *live.Object
}

// owned is what a reference counts for that has an owner, besides one.
const owned = 1 << 32

// Init sets the count to one. kind names the object in panics and in lists of live objects.
func (c *Count) Init(kind string) {
	c.kind = kind
	c.refs.Store(1)
}

// InitTraced is Init for an object that lists of live objects show.
func (c *Count) InitTraced(kind string) {
	c.Init(kind)
	c.origin = live.Add(kind)
}

// Retain adds a reference for a caller that holds one.
func (c *Count) Retain() {
	if !c.TryRetain() {
		panic(c.Misuse("Retain after the last Release"))
	}
}

// TryRetain adds a reference and reports whether there was one. It is for callers that hold no
// reference: another goroutine's last Release may have come first.
func (c *Count) TryRetain() bool {
	for {
		refs := c.refs.Load()
		if refs <= 0 {
			return false
		}
		if c.refs.CompareAndSwap(refs, refs+1) {
			return true
		}
	}
}

// Release drops a reference that has no owner, and reports whether that was the last one.
func (c *Count) Release() (last bool) {
	switch refs := c.refs.Add(-1); {
	case refs > 0 && refs%owned >= refs/owned:
		return false
	case refs == 0:
		c.origin.Remove()
		return true
	case refs > 0:
		c.refs.Add(1)
		panic(fmt.Errorf("cdevice: %s: Release without a Retain: it is borrowed from its reader, which releases it: %w", c.kind, arrow.ErrInvalid))
	}
	c.refs.Add(1)
	panic(c.Misuse("Release of an object without references"))
}

// TryRelease is Release for objects whose references may be miscounted: it reports whether that was the last
// reference, and whether there was one, in place of a panic.
func (c *Count) TryRelease() (last, had bool) {
	for {
		refs := c.refs.Load()
		if refs <= 0 {
			return false, false
		}
		if !c.refs.CompareAndSwap(refs, refs-1) {
			continue
		}
		if refs == 1 {
			c.origin.Remove()
		}
		return refs == 1, true
	}
}

// Own gives the reference of the caller an owner, a reader, which lends the object to a program: so a
// Release too many panics in the program that calls it, and not in the reader.
func (c *Count) Own() { c.refs.Add(owned) }

// Disown undoes Own. The owner then drops its reference.
func (c *Count) Disown() { c.refs.Add(-owned) }

// Kind returns what Init was given.
func (c *Count) Kind() string { return c.kind }

// Alive reports whether there is a reference. Unless the caller holds one, the answer may be out of
// date at once.
func (c *Count) Alive() bool { return c.refs.Load() > 0 }

// Sole reports whether there is exactly one reference. If the caller holds it, true stays true: no
// other goroutine can add one.
func (c *Count) Sole() bool { return c.refs.Load()%owned == 1 }

// Misuse is the error of a call on an object without references, which what names: "Column after the last Release".
func (c *Count) Misuse(what string) error {
	kind := c.kind
	if kind == "" {
		kind = "object that no function of this package made"
	}
	return fmt.Errorf("cdevice: %s: %s: %w", kind, what, fielderr.ErrReleased)
}
