package copyplan

import (
	"context"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/memcopy"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// source is a tree to be copied, whose layout buffers can be read.
type source struct {
	tree.Tree
	pace           *hostread.Pace
	dev            device.Device // nil if the CPU can access the memory
	*layoutBuffers               // the layout buffers that were read from device memory
	known          *tree.Block   // describes the memory of a copy, which need not be read; nil otherwise
	asLists        bool          // plans make lists of lists of a fixed size
}

// openSource waits for the event of memory that the CPU can access. Of other memory, it reads the
// layout buffers, after the work enqueued on the stream on. The caller closes the source.
func openSource(ctx context.Context, t tree.Tree, on device.Stream) (*source, error) {
	s := &source{Tree: t, pace: &hostread.Pace{Ctx: ctx, Op: fielderr.OpRead}, layoutBuffers: &layoutBuffers{nodes: t.Nodes}, known: t.Mem.Block}
	if t.At.CPUAccessible() {
		return s, t.At.Synchronize(ctx)
	}
	dev, err := t.At.Device()
	if err != nil {
		return nil, fmt.Errorf("cdevice: read: the CPU cannot access memory of %s: %w", t.At.ID, err)
	}
	s.dev = dev
	s.layoutBuffers, err = readLayout(ctx, dev, t, s.known, on)
	return s, err
}

// Close frees the layout buffers.
func (s *source) Close() { s.free() }

func (s *source) remote() bool { return s.dev != nil }

// Plan returns the copy plans of the nodes. Layout buffers in memory that is gone are an error.
func (s *source) Plan(toHost bool) (plans []Plan, err error) {
	gone := memcopy.Guard(func() error {
		plans, err = s.plan(toHost)
		return nil
	})
	if gone != nil {
		return nil, fmt.Errorf("cdevice: read: %w", gone)
	}
	return plans, err
}

func (s *source) plan(toHost bool) ([]Plan, error) {
	c := planner{toHost: toHost && !s.remote(), remote: s.remote(), asLists: s.asLists, layoutBuffers: s.layoutBuffers, block: s.known, pace: s.pace}
	for i := range s.layoutBuffers.nodes {
		c.expect += len(s.layoutBuffers.nodes[i].Buffers)
	}
	plans := make([]Plan, len(s.layoutBuffers.nodes))
	for i := range s.layoutBuffers.nodes {
		n := &s.layoutBuffers.nodes[i]
		plan, err := c.cut(n, 0, n.Length)
		if err != nil {
			return nil, fielderr.Within(s.Name(i), fielderr.During(fielderr.OpRead, err))
		}
		plans[i] = plan
	}
	return plans, nil
}

// keepUntilDone keeps the source, and calls release, after the work enqueued on the stream so far
// has completed.
func (s *source) keepUntilDone(stream device.Stream, release func()) {
	s.Mem.Retain()
	afterStream(stream, s.Mem, func() {
		release()
		s.Mem.Release()
	})
}
