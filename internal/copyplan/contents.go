package copyplan

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// contentsAtOnce is how much memory is read at once: of as many columns as reach it.
const contentsAtOnce = 64 << 20

// EachOnHost calls do for each node of t, which the CPU cannot access, with its contents in CPU
// memory until do returns: all buffers that a validation reads, so not the values of fixed-width
// types. Before data whose size follows from contents is read, sized checks that its buffer i is of
// that size.
func EachOnHost(ctx context.Context, t tree.Tree, sized func(i int, addr uintptr, size int64) error, do func(n *tree.Node) error) error {
	dev, err := t.At.Device()
	if err != nil {
		return err
	}
	l, err := readLayout(ctx, dev, t, nil, nil)
	if err != nil {
		return notRead(t.At, err)
	}
	defer l.free()
	for from := 0; from < len(t.Nodes); {
		r, to := contentsReader{sized: sized}, from
		var bad error
		for ; to < len(t.Nodes) && r.size < contentsAtOnce && bad == nil; to++ {
			if bad = r.node(&t.Nodes[to], &l.nodes[to]); bad != nil {
				bad = fielderr.Within(t.Name(to), fielderr.During(fielderr.OpValidate, bad))
				if !r.sizeless {
					return bad
				}
			}
		}
		err := r.during(ctx, dev, t, func() error {
			for i := from; i < to; i++ {
				if err := do(&l.nodes[i]); err != nil {
					return fielderr.Within(t.Name(i), err)
				}
			}
			return bad
		})
		if err != nil {
			return err
		}
		from = to
	}
	return nil
}

// contentsReader collects the buffers of nodes that are no layout buffers.
type contentsReader struct {
	layoutReader
	sized func(i int, addr uintptr, size int64) error
	sizes []int64
	// sizeless reports that a node has a size that cannot be: neither its data is read, nor the nodes
	// after it. A validation of the nodes finds the first that is wrong, which is this one or one before.
	sizeless bool
}

// during calls do while the collected buffers are in CPU memory.
func (r *contentsReader) during(ctx context.Context, dev device.Device, t tree.Tree, do func() error) error {
	c, err := r.fetch(ctx, dev, t, nil)
	if err != nil {
		return notRead(t.At, err)
	}
	defer c.free()
	return do()
}

func notRead(at tree.Location, err error) error {
	return fmt.Errorf("cdevice: validate: read memory of %s: %w", at.ID, err)
}

// node collects the buffers of own, the node at whose layout buffers are in CPU memory.
func (r *contentsReader) node(at, own *tree.Node) error {
	if own.Length > 0 {
		if err := r.buffers(at, own); err != nil {
			return err
		}
	}
	for i := range own.Children {
		if err := r.node(&at.Children[i], &own.Children[i]); err != nil {
			return fielderr.Within(own.ChildName(i), err)
		}
	}
	return nil
}

func (r *contentsReader) buffers(at, own *tree.Node) (err error) {
	st := own.Storage()
	if r.sizes, err = hostread.Sizes(r.sizes[:0], own, st); err != nil {
		r.sizeless = true
		return err
	}
	if at.Validity() != 0 && own.Validity() == at.Validity() {
		r.bits(own, 0)
	}
	switch own.Layout.Kind {
	case layout.Dictionary:
		r.elements(own, 1, own.Length, layout.ByteWidth(st))
	case layout.Sparse:
		r.elements(own, 0, own.Length, 1)
	case layout.Binary32, layout.Binary64, layout.View:
		for i := 2; i < len(r.sizes); i++ {
			if r.sizes[i] == 0 {
				continue
			}
			if err := r.sized(i, own.Buffers[i], r.sizes[i]); err != nil {
				return err
			}
			if id := st.ID(); id != arrow.BINARY && id != arrow.LARGE_BINARY {
				r.add(&own.Buffers[i], 0, r.sizes[i])
			}
		}
	}
	return nil
}
