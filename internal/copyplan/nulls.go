package copyplan

import (
	"context"
	"fmt"

	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/memcopy"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// CountNulls returns the nodes with their null counts, including those of descendants if all is
// set. Bitmaps in device memory are read all at once.
func CountNulls(ctx context.Context, t tree.Tree, all bool) ([]tree.Node, error) {
	own := copyNodes(t.Nodes, all)
	var unknown []*tree.Node
	eachUnknown(own, all, func(n *tree.Node) { unknown = append(unknown, n) })
	if len(unknown) == 0 {
		return own, nil
	}
	if t.At.CPUAccessible() {
		if err := t.At.Synchronize(ctx); err != nil {
			return nil, err
		}
		gone := memcopy.Guard(func() error {
			for _, n := range unknown {
				n.Nulls = hostread.Nulls(n)
			}
			return nil
		})
		if gone != nil {
			return nil, fmt.Errorf("cdevice: read: %w", gone)
		}
		return own, nil
	}
	dev, err := t.At.Device()
	if err != nil {
		return nil, err
	}
	var r layoutReader
	bitmaps := make([]uintptr, len(unknown))
	for i, n := range unknown {
		bitmaps[i] = n.Buffers[0]
		first := n.Offset / 8
		r.add(&bitmaps[i], first, layout.BitBytes(n.Offset+n.Length)-first)
	}
	read, err := r.fetch(ctx, dev, t, nil)
	if err != nil {
		return nil, err
	}
	defer read.free()
	for i, n := range unknown {
		host := *n
		host.Buffers = []uintptr{bitmaps[i]}
		n.Nulls = hostread.Nulls(&host)
	}
	return own, nil
}

// copyNodes copies the nodes, and those below them if all is set.
func copyNodes(nodes []tree.Node, all bool) []tree.Node {
	own := append([]tree.Node(nil), nodes...)
	if all {
		for i := range own {
			own[i].Children = copyNodes(own[i].Children, all)
		}
	}
	return own
}

func eachUnknown(nodes []tree.Node, all bool, do func(*tree.Node)) {
	for i := range nodes {
		n := &nodes[i]
		switch {
		case n.Nulls != tree.UnknownNulls:
		case n.Length == 0 || n.Validity() == 0:
			n.Nulls = 0
		default:
			do(n)
		}
		if all {
			eachUnknown(n.Children, all, do)
		}
	}
}
