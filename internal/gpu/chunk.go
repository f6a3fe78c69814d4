package gpu

import (
	"context"
	"errors"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/hostcopy"
	"github.com/arrowdevice/arrowdevice/internal/keep"
)

// chunk is staging memory that is being filled. The GPU copies its first part while the rest is
// filled.
type chunk struct {
	*Staging
	stream   uintptr
	memory   *Memory
	enqueued bool // some copies out of it are
}

// fill stages as much of the list as fits, and enqueues the copies out of the chunk. It returns the
// rest of the list, whose ranges it may change.
func (c *chunk) fill(ctx context.Context, list []device.Range) (rest []device.Range, err error) {
	in, rest := hostcopy.Cut(list, c.memory.Size())
	in, out := c.place(in)
	var refused error
	err = hostcopy.Copy(ctx, in, stagingCopy, func() error {
		var next []device.Range
		next, out = hostcopy.Cut(out, stagingCopy)
		refused = c.enqueue(ctx, next)
		return refused
	})
	if err != nil && refused == nil {
		return nil, fmt.Errorf("cuda: upload on %s: %w", c.ctx, err)
	}
	return rest, err
}

// place returns the copies into the memory, which it makes of the ranges, and those out of it to their destinations.
func (c *chunk) place(ranges []device.Range) (in, out []device.Range) {
	at := c.memory.Ptr()
	for i := range ranges {
		r := &ranges[i]
		if last := len(out) - 1; last >= 0 && out[last].Dst+device.Ptr(out[last].Size) == r.Dst {
			out[last].Size += r.Size
		} else {
			out = append(out, device.Range{Dst: r.Dst, Src: at, Size: r.Size})
		}
		r.Dst = at
		at += device.Ptr(r.Size)
	}
	return ranges, out
}

// enqueue enqueues copies out of the memory, when the stream has room for them.
func (c *chunk) enqueue(ctx context.Context, copies []device.Range) error {
	err := waitingFor(ctx).copies(c.events.backlog, copies, c.stream, func(piece []device.Range) error {
		c.enqueued = true // even if a copy fails: those before it are
		return c.ctx.Copy(piece, c.stream)
	})
	if err == nil && c.between != nil {
		c.between()
	}
	return err
}

// finish takes the memory, which ends when the copies that are enqueued are done, and returns an
// event behind them, which the caller holds. failed is the error of fill.
func (c *chunk) finish(failed error) (*SharedEvent, error) {
	if !c.enqueued {
		_ = c.end() // no work uses the memory
		return nil, failed
	}
	done := &Deferral{key: keep.Key(c.memory.Ptr()), end: c.end}
	event, err := c.events.record(c.stream)
	if err != nil { // the memory is free only after all work
		c.deferred.add(done)
		return nil, errors.Join(failed, err)
	}
	event.refs.Add(1)
	done.after = event
	c.deferred.add(done)
	if failed != nil {
		event.letGo()
		return nil, failed
	}
	return event, nil
}

// end gives the memory back.
func (c *chunk) end() error {
	c.free(c.memory.Size(), c.stream)
	return c.memory.FreeAfter(nil, nil)
}
