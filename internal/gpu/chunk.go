package gpu

import (
	"errors"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/keep"
	"github.com/arrowdevice/arrowdevice/internal/memcopy"
)

// chunk is staging memory that is being filled. The GPU copies its first part while the rest is
// filled.
type chunk struct {
	*Staging
	stream uintptr
	memory *Memory

	used     int64          // bytes of the memory
	copies   []device.Range // out of it that are not enqueued
	enqueued bool           // some copies are
}

// fill stages the ranges until the chunk is full, and enqueues the copies out of it. It returns the
// rest of the list, whose ranges it may change.
func (c *chunk) fill(list []device.Range) (rest []device.Range, err error) {
	for len(list) > 0 && c.used < c.memory.Size() {
		if list, err = c.stageOrFault(list); err == nil {
			err = c.enqueue()
		}
		if err != nil {
			return list, err
		}
		if c.between != nil {
			c.between()
		}
	}
	return list, nil
}

// enqueue enqueues the copies of what was staged since the last call.
func (c *chunk) enqueue() error {
	c.enqueued = true // even if a copy fails: those before it are
	err := c.ctx.Copy(c.copies, c.stream)
	c.copies = c.copies[:0]
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

// stageOrFault is stage with an error where memory cannot be accessed: a reset of the primary
// context unmaps page-locked memory, and the source is the caller's.
func (c *chunk) stageOrFault(list []device.Range) (rest []device.Range, err error) {
	err = memcopy.Guard(func() error {
		rest = c.stage(list)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cuda: upload on %s: %w", c.ctx, err)
	}
	return rest, nil
}

// stage copies from the ranges until the chunk is full, or as much is staged as is copied at once. It
// returns the remaining ranges. It may change ranges.
func (c *chunk) stage(list []device.Range) (rest []device.Range) {
	end := min(c.memory.Size(), c.used+stagingCopy)
	for i := range list {
		r := &list[i]
		n, at := min(r.Size, end-c.used), c.memory.Ptr()+device.Ptr(c.used)
		if n == 0 {
			return list[i:]
		}
		_ = memcopy.Copy(uintptr(at), uintptr(r.Src), n, nil)
		if last := len(c.copies) - 1; last >= 0 && c.copies[last].Dst+device.Ptr(c.copies[last].Size) == r.Dst {
			c.copies[last].Size += n
		} else {
			c.copies = append(c.copies, device.Range{Dst: r.Dst, Src: at, Size: n})
		}
		c.used += n
		if n < r.Size {
			*r = device.Range{Dst: r.Dst + device.Ptr(n), Src: r.Src + device.Ptr(n), Size: r.Size - n}
			return list[i:]
		}
	}
	return nil
}
