package copyplan

import (
	"context"
	"fmt"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Layout buffers are those that determine which parts of other buffers a slice of a tree needs:
// offsets, sizes, views, type ids and run ends; also bitmaps whose first bit is not at the start of
// a byte. For a batch in device memory, all of them are copied to the CPU at once, so that one wait
// is enough for the whole batch.

// layoutBuffers is a tree whose layout buffers are in CPU memory.
type layoutBuffers struct {
	nodes []tree.Node
	host  device.Memory // nil if there are none
}

func (c *layoutBuffers) free() {
	if c.host != nil {
		_ = c.host.FreeAfter(nil) // the backend tries again itself
	}
}

// has reports whether an address is in the copy of the layout buffers.
func (c *layoutBuffers) has(addr uintptr) bool {
	return c.host != nil && addr-uintptr(c.host.Ptr()) < uintptr(c.host.Size())
}

// layoutReader collects the layout buffers to read.
type layoutReader struct {
	block *tree.Block
	reads []layoutRead
	size  int64
}

// layoutRead is a range of device memory to copy. *into becomes the address of the copy minus
// before, as if the copy began where the buffer begins.
type layoutRead struct {
	into   *uintptr
	before int64
	size   int64
	at     int64 // position in the copy
}

// readLayout copies the layout buffers of nodes on dev to the CPU, after the event of the batch and
// the work enqueued on the stream on. ctx ends the wait; the memory is then freed when the copies
// have completed.
func readLayout(ctx context.Context, dev device.Device, t tree.Tree, known *tree.Block, on device.Stream) (*layoutBuffers, error) {
	r := layoutReader{block: known}
	own := r.clone(t.Nodes, false)
	c, err := r.fetch(ctx, dev, t, on)
	if err != nil {
		return nil, err
	}
	c.nodes = own
	return c, nil
}

// fetch copies the collected buffers to the CPU, after the work enqueued on the stream on.
func (r *layoutReader) fetch(ctx context.Context, dev device.Device, t tree.Tree, on device.Stream) (*layoutBuffers, error) {
	c := &layoutBuffers{}
	if len(r.reads) == 0 {
		return c, nil
	}
	host, err := allocateHost(ctx, dev, r.size)
	if err != nil {
		return nil, fmt.Errorf("cdevice: read: %w", err)
	}
	c.host = host
	s, done, err := copyStream(nil, dev)
	if err != nil {
		c.free()
		return nil, fmt.Errorf("cdevice: read: %w", err)
	}
	defer done()
	if err := t.At.WaitOn(s); err != nil {
		c.free()
		return nil, err
	}
	if err := waitForStream(s, on); err != nil {
		c.free()
		return nil, err
	}
	list := make([]device.Range, len(r.reads))
	for i, read := range r.reads {
		list[i] = device.Range{Dst: host.Ptr() + device.Ptr(read.at), Src: device.Ptr(*read.into + uintptr(read.before)), Size: read.size}
		*read.into = uintptr(list[i].Dst) - uintptr(read.before)
	}
	err = enqueueCopies(ctx, dev, list, s)
	if err == nil {
		err = s.Synchronize(ctx)
	}
	if err != nil {
		// Copies may be running, from the batch and into the CPU memory.
		t.Mem.Retain()
		afterStream(s, t.Mem, func() { c.free(); t.Mem.Release() })
		return nil, fmt.Errorf("cdevice: read: %w", err)
	}
	return c, nil
}

// clone copies the nodes, and collects their layout buffers. Only the buffers of parents determine
// which elements of inner nodes are needed, so those are read whole.
func (r *layoutReader) clone(nodes []tree.Node, inner bool) []tree.Node {
	own := make([]tree.Node, len(nodes))
	copy(own, nodes)
	for i := range own {
		n := &own[i]
		if _, ok := r.block.Whole(n); ok && !inner {
			if hasRuns(n) { // the block has no length of a run-end encoded array, so its ends are read
				n.Children = r.clone(n.Children, false)
			}
			continue // all of its sizes are known
		}
		r.read(n, inner)
		n.Children = r.clone(n.Children, true)
		if n.Layout.Kind == layout.RunEnds {
			ends := &n.Children[0]
			ends.Buffers = append([]uintptr(nil), ends.Buffers...)
			r.elements(ends, 1, ends.Length, layout.ByteWidth(ends.Storage()))
		}
	}
	return own
}

// hasRuns reports whether an array below n is run-end encoded.
func hasRuns(n *tree.Node) bool {
	for i := range n.Children {
		if c := &n.Children[i]; c.Layout.Kind == layout.RunEnds || hasRuns(c) {
			return true
		}
	}
	return false
}

func (r *layoutReader) read(n *tree.Node, inner bool) {
	if n.Length == 0 {
		return
	}
	n.Buffers = append([]uintptr(nil), n.Buffers...)
	moved := inner || n.Offset%8 != 0
	if n.Validity() != 0 && n.Nulls != 0 && (moved || asksValidity(n.Layout.Kind)) {
		r.bits(n, 0)
	}
	switch n.Layout.Kind {
	case layout.Bits:
		if moved {
			r.bits(n, 1)
		}
	case layout.Binary32, layout.List32:
		r.elements(n, 1, n.Length+1, 4)
	case layout.Binary64, layout.List64:
		r.elements(n, 1, n.Length+1, 8)
	case layout.View:
		r.elements(n, 1, n.Length, layout.ViewSize)
	case layout.ListView32:
		r.elements(n, 1, n.Length, 4)
		r.elements(n, 2, n.Length, 4)
	case layout.ListView64:
		r.elements(n, 1, n.Length, 8)
		r.elements(n, 2, n.Length, 8)
	case layout.Dense:
		r.elements(n, 0, n.Length, 1)
		r.elements(n, 1, n.Length, 4)
	}
}

// asksValidity reports whether the planner reads the validity of elements of the kind.
func asksValidity(kind layout.Kind) bool {
	return kind == layout.View || kind == layout.ListView32 || kind == layout.ListView64
}

func (r *layoutReader) bits(n *tree.Node, i int) {
	first := n.Offset / 8
	r.add(&n.Buffers[i], first, layout.BitBytes(n.Offset+n.Length)-first)
}

func (r *layoutReader) elements(n *tree.Node, i int, count, width int64) {
	r.add(&n.Buffers[i], n.Offset*width, count*width)
}

func (r *layoutReader) add(into *uintptr, before, size int64) {
	if size == 0 {
		return
	}
	r.reads = append(r.reads, layoutRead{into, before, size, r.size})
	r.size += (size + 63) &^ 63
}
