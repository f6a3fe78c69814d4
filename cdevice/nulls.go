package cdevice

import (
	"context"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// CountNulls is the number of nulls, counted where nobody knows it: the bitmap is read,
// for which it waits for the array's event. ctx ends the wait.
func (a *Array) CountNulls(ctx context.Context) (int64, error) {
	if err := checkContext(fielderr.OpRead, ctx); err != nil {
		return 0, err
	}
	if err := a.hold(fielderr.OpRead); err != nil {
		return 0, err
	}
	defer a.mem.Release()
	counted, err := countNulls(ctx, a.tree(), false)
	if err != nil {
		return 0, err
	}
	return counted[0].nulls, nil
}

// countNulls returns the nodes with their null counts, and those of their descendants if
// all is set. Bitmaps of a device are read all at once.
func countNulls(ctx context.Context, t tree, all bool) ([]node, error) {
	own := copyNodes(t.nodes, all)
	var unknown []*node
	eachUnknown(own, all, func(n *node) { unknown = append(unknown, n) })
	if len(unknown) == 0 {
		return own, nil
	}
	if t.at.hostReadable() {
		if err := t.at.wait(ctx); err != nil {
			return nil, err
		}
		for _, n := range unknown {
			n.nulls = n.countNulls()
		}
		return own, nil
	}
	dev, err := t.at.device()
	if err != nil {
		return nil, err
	}
	var r controlReader
	bitmaps := make([]uintptr, len(unknown))
	for i, n := range unknown {
		bitmaps[i] = n.buffers[0]
		first := n.offset / 8
		r.add(&bitmaps[i], first, layout.BitBytes(n.offset+n.length)-first)
	}
	read, err := r.fetch(ctx, dev, t, nil)
	if err != nil {
		return nil, err
	}
	defer read.free()
	for i, n := range unknown {
		host := *n
		host.buffers = []uintptr{bitmaps[i]}
		n.nulls = host.countNulls()
	}
	return own, nil
}

// copyNodes copies the nodes, and those below them if all is set.
func copyNodes(nodes []node, all bool) []node {
	own := append([]node(nil), nodes...)
	if all {
		for i := range own {
			own[i].children = copyNodes(own[i].children, all)
		}
	}
	return own
}

func eachUnknown(nodes []node, all bool, do func(*node)) {
	for i := range nodes {
		n := &nodes[i]
		switch {
		case n.nulls != unknownNulls:
		case n.length == 0 || n.validity() == 0:
			n.nulls = 0
		default:
			do(n)
		}
		if all {
			eachUnknown(n.children, all, do)
		}
	}
}
