package copyplan

import (
	"context"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// source is a tree that is about to be copied, ready to be looked into.
type source struct {
	tree.Tree
	Pace           *hostread.Pace
	dev            device.Device // nil where the host can read the memory
	*layoutBuffers               // what was read of a device's memory
	known          *tree.Block   // what is known of a copy's memory without reading it; nil: nothing
}

// openSource waits for memory that the CPU can access, and reads what must be known
// of memory that it cannot, after the work on the stream of the options. Close it.
func openSource(ctx context.Context, t tree.Tree, on device.Stream) (*source, error) {
	return openKnown(ctx, t, t.Mem.Block, on)
}

// OpenUnknown is openSource that believes nothing of a copy that was made here.
func OpenUnknown(ctx context.Context, t tree.Tree) (*source, error) {
	return openKnown(ctx, t, nil, nil)
}

// openKnown is openSource with what is known of the memory.
func openKnown(ctx context.Context, t tree.Tree, known *tree.Block, on device.Stream) (*source, error) {
	s := &source{Tree: t, Pace: &hostread.Pace{Ctx: ctx, Op: fielderr.OpRead}, layoutBuffers: &layoutBuffers{nodes: t.Nodes}, known: known}
	if t.At.CPUAccessible() {
		return s, t.At.Synchronize(ctx)
	}
	dev, err := t.At.Device()
	if err != nil {
		return nil, fmt.Errorf("cdevice: read: the CPU cannot access memory of %s: %w", t.At.ID, err)
	}
	s.dev = dev
	s.layoutBuffers, err = readLayout(ctx, dev, t, known, on)
	return s, err
}

func (s *source) Close() { s.free() }

func (s *source) remote() bool { return s.dev != nil }

// Plan cuts the trees to what their elements need.
func (s *source) Plan(toHost bool) ([]Plan, error) {
	c := planner{toHost: toHost && !s.remote(), remote: s.remote(), layoutBuffers: s.layoutBuffers, block: s.known, pace: s.Pace}
	trees := make([]Plan, len(s.layoutBuffers.nodes))
	for i := range s.layoutBuffers.nodes {
		n := &s.layoutBuffers.nodes[i]
		tree, err := c.cut(n, 0, n.Length)
		if err != nil {
			return nil, fielderr.Within(s.Name(i), fielderr.During(fielderr.OpRead, err))
		}
		trees[i] = tree
	}
	return trees, nil
}

// keepUntilDone keeps the source, and what release ends, until the work enqueued on the
// stream so far is done.
func (s *source) keepUntilDone(stream device.Stream, release func()) {
	s.Mem.Retain()
	afterStream(stream, func() {
		release()
		s.Mem.Release()
	})
}

// afterStream calls f after the work enqueued on the stream so far; where no event can be
// recorded there, after all work of its device.
func afterStream(s device.Stream, f func()) {
	e, err := EventAfter(s)
	if err != nil {
		s.Device().AfterWork(f)
		return
	}
	defer tree.CloseEvent(e)
	e.OnComplete(f)
}

// EventAfter returns an event behind the work enqueued on the stream so far.
func EventAfter(s device.Stream) (device.Event, error) {
	e, err := s.Device().NewEvent()
	if err != nil {
		return nil, err
	}
	if err := s.Record(e); err != nil {
		tree.CloseEvent(e)
		return nil, err
	}
	return e, nil
}
