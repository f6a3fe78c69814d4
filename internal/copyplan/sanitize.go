package copyplan

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// libcudf's functions expect that null lists and null strings are empty, and that the children of a null struct
// are null; and that the keys of a dictionary have no nulls. Its imports do not check that.

// unsanitized reports which of the nodes are not as libcudf's functions expect. It reads bitmaps, and the offsets
// of arrays that have some, and waits for the event if there are any.
func unsanitized(ctx context.Context, t tree.Tree) ([]bool, error) {
	bad := make([]bool, len(t.Nodes))
	s := sanitizer{pace: &hostread.Pace{Ctx: ctx, Op: fielderr.OpCuDF}}
	err := onHost(ctx, t, (*layoutReader).nullable, func(i int, n *tree.Node) (err error) {
		bad[i], err = s.bad(n)
		return err
	})
	return bad, err
}

// onHost calls do for each node, after read has collected the buffers that do reads: if the CPU cannot access the
// memory, these are copied at once.
func onHost(ctx context.Context, t tree.Tree, read func(r *layoutReader, nodes []tree.Node) []tree.Node, do func(i int, n *tree.Node) error) error {
	r := layoutReader{}
	nodes := read(&r, t.Nodes)
	switch {
	case len(r.reads) == 0: // do reads nothing
	case t.At.CPUAccessible():
		nodes = t.Nodes
		if err := t.At.Synchronize(ctx); err != nil {
			return err
		}
	default:
		dev, err := t.At.Device()
		if err != nil {
			return err
		}
		c, err := r.fetch(ctx, dev, t, nil)
		if err != nil {
			return err
		}
		defer c.free()
	}
	for i := range nodes {
		if err := do(i, &nodes[i]); err != nil {
			return fielderr.Within(t.Name(i), err)
		}
	}
	return nil
}

// mayHaveNulls reports whether the bitmap decides if the node has nulls.
func mayHaveNulls(n *tree.Node) bool { return n.Length > 0 && n.Validity() != 0 && n.Nulls != 0 }

// nullable copies the nodes, and collects what sanitizer.bad reads.
func (r *layoutReader) nullable(nodes []tree.Node) []tree.Node { return r.nullableBelow(nodes, false) }

// nullableBelow is nullable for the children of an array whose nulls they must have, if that is set.
func (r *layoutReader) nullableBelow(nodes []tree.Node, compared bool) []tree.Node {
	own := append([]tree.Node(nil), nodes...)
	for i := range own {
		n := &own[i]
		nulls := mayHaveNulls(n)
		kind := n.Layout.Kind
		if nulls {
			n.Buffers = append([]uintptr(nil), n.Buffers...)
		}
		switch kind {
		case layout.Binary32, layout.List32:
			if nulls {
				r.elements(n, 1, n.Length+1, 4)
			}
		case layout.Binary64:
			if nulls {
				r.elements(n, 1, n.Length+1, 8)
			}
		case layout.FixedList, layout.Struct:
		default:
			nulls = nulls && compared
		}
		if nulls {
			r.bits(n, 0)
		}
		n.Children = r.nullableBelow(n.Children, kind == layout.Dictionary || kind == layout.Struct && nulls)
	}
	return own
}

// sanitizer looks for what libcudf's functions do not expect.
type sanitizer struct{ pace *hostread.Pace }

// bad reports whether the node or one below it is not as libcudf's functions expect.
func (s sanitizer) bad(n *tree.Node) (bad bool, err error) {
	if mayHaveNulls(n) {
		switch n.Layout.Kind {
		case layout.Binary32, layout.List32:
			bad, err = notEmpty[int32](s, n)
		case layout.Binary64:
			bad, err = notEmpty[int64](s, n)
		case layout.FixedList:
			bad = hostread.CountNulls(n) > 0
		case layout.Struct:
			bad, err = s.validBelow(n)
		}
	}
	if n.Layout.Kind == layout.Dictionary {
		bad = mayHaveNulls(&n.Children[0]) && hostread.CountNulls(&n.Children[0]) > 0 // mutant: deleted
	}
	for i := range n.Children {
		if bad || err != nil {
			break
		}
		if bad, err = s.bad(&n.Children[i]); err != nil {
			err = fielderr.Within(n.ChildName(i), err)
		}
	}
	return bad, err
}

// any reports whether the condition holds for one of the first count elements.
func (s sanitizer) any(count int64, holds func(i int) bool) (found bool, err error) {
	err = s.pace.Parts(int(count), func(from, to int) error {
		for i := from; i < to && !found; i++ {
			found = holds(i)
		}
		return nil
	})
	return found, err
}

// notEmpty reports whether a null element has a size.
func notEmpty[T hostread.OffsetInt](s sanitizer, n *tree.Node) (bool, error) {
	offsets, valid := hostread.Values[T](n, 1, n.Length+1), hostread.IsValid(n)
	// mutant: return s.any(n.Length, func(i int) bool { return !valid(i) && offsets[i] > offsets[i+1] })
	return s.any(n.Length, func(i int) bool { return !valid(i) && offsets[i] != offsets[i+1] })
}

// validBelow reports whether a child of a null struct is not null.
func (s sanitizer) validBelow(n *tree.Node) (bad bool, err error) {
	valid := hostread.IsValid(n)
	for k := range n.Children {
		c := &n.Children[k]
		if c.Layout.Kind == layout.Null || bad || err != nil {
			continue
		}
		if c.Length < n.Offset+n.Length {
			return false, fielderr.Invalid(fielderr.OpCuDF, n.ChildName(k)+".length", c.Length, n.Offset+n.Length)
		}
		validChild := func(int) bool { return true }
		if mayHaveNulls(c) {
			validChild = hostread.IsValid(c)
		}
		// mutant: bad, err = s.any(n.Length, func(i int) bool { return !valid(i) && validChild(i) })
		// mutant: bad, err = s.any(n.Length, func(i int) bool { return !valid(i) && !validChild(int(n.Offset)+i) })
		bad, err = s.any(n.Length, func(i int) bool { return !valid(i) && validChild(int(n.Offset)+i) })
	}
	return bad, err
}

// uneven reports which of the nodes have lists that are to become lists of a fixed size and are not laid out as
// these are: all of the same size, one after the other, from the start of the child.
func uneven(ctx context.Context, t tree.Tree, types []arrow.DataType) ([]bool, error) {
	bad := make([]bool, len(t.Nodes))
	s := sanitizer{pace: &hostread.Pace{Ctx: ctx, Op: fielderr.OpFromCuDF}}
	read := func(r *layoutReader, nodes []tree.Node) []tree.Node {
		own := append([]tree.Node(nil), nodes...)
		for i := range own {
			r.lists(&own[i], types[i])
		}
		return own
	}
	err := onHost(ctx, t, read, func(i int, n *tree.Node) (err error) {
		bad[i], err = s.uneven(n, types[i])
		return err
	})
	return bad, err
}

// becomesFixed reports whether the node is a list that becomes a list of a fixed size.
func becomesFixed(n *tree.Node, to *layout.Layout) bool {
	return n.Layout.Kind == layout.List32 && to.Kind == layout.FixedList
}

// lists collects the offsets and bitmaps that sanitizer.uneven reads.
func (r *layoutReader) lists(n *tree.Node, dt arrow.DataType) {
	st, l := layout.Of(dt)
	if becomesFixed(n, l) && n.Length > 0 {
		n.Buffers = append([]uintptr(nil), n.Buffers...)
		r.elements(n, 1, n.Length+1, 4)
		if mayHaveNulls(n) {
			r.bits(n, 0)
		}
	}
	n.Children = append([]tree.Node(nil), n.Children...)
	for i := range n.Children {
		r.lists(&n.Children[i], layout.ChildType(st, i))
	}
}

func (s sanitizer) uneven(n *tree.Node, dt arrow.DataType) (bad bool, err error) {
	st, l := layout.Of(dt)
	if becomesFixed(n, l) && n.Length > 0 {
		width := int64(st.(*arrow.FixedSizeListType).Len())
		offsets := hostread.Values[int32](n, 1, n.Length+1)
		bad = mayHaveNulls(n) && hostread.CountNulls(n) > 0 || n.Children[0].Length < (n.Offset+n.Length)*width
		if !bad {
			bad, err = s.any(n.Length+1, func(i int) bool { return int64(offsets[i]) != (n.Offset+int64(i))*width })
		}
	}
	for i := range n.Children {
		if bad || err != nil {
			break
		}
		bad, err = s.uneven(&n.Children[i], layout.ChildType(st, i))
	}
	return bad, err
}
