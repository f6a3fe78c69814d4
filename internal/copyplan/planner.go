package copyplan

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/memcopy"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// planner makes plans. It reads layout buffers (see readlayout.go), so these are in CPU memory;
// the other buffers may be in any memory.
type planner struct {
	// toHost is set for copies to the CPU. Bitmaps are then made too, with all bits zero that no
	// element has.
	toHost bool
	// remote is set if only layout buffers can be read.
	remote bool
	// asLists is set if lists of a fixed size become lists, as libcudf has them.
	asLists       bool
	layoutBuffers *layoutBuffers // nil if the CPU can access all buffers
	block         *tree.Block    // of the source, if that is a copy of this package
	pace          *hostread.Pace // nil without a context

	// Memory for many nodes, allocated at once.
	parts  []part
	expect int     // the number of parts to allocate next
	sizes  []int64 // of the buffers of one node, which only are checked
}

// newParts returns an empty list with room for the parts of a node.
func (c *planner) newParts(n *tree.Node) []part {
	k := len(n.Buffers)
	if c.asLists && n.Layout.Kind == layout.FixedList {
		k++ // the offsets
	}
	if len(c.parts) < k {
		c.parts = make([]part, max(k, c.expect))
	}
	return tree.Take(&c.parts, k)[:0]
}

// bits takes bits [from, from+count) of the bitmap at addr. It shifts them into a new bitmap if
// they do not start with a byte, or were already read.
func (c *planner) bits(addr uintptr, from, count int64) part {
	if count == 0 || from%8 == 0 && !c.toHost && !c.layoutBuffers.has(addr+uintptr(from/8)) {
		return taken(addr+uintptr(from/8), layout.BitBytes(count))
	}
	moved, p := makePart[byte](layout.BitBytes(count))
	bitutil.CopyBitmap(abi.Slice[byte](addr, int(layout.BitBytes(from+count))), int(from), int(count), moved, 0)
	return p
}

// cut returns elements [i, j) of n.
func (c *planner) cut(n *tree.Node, i, j int64) (Plan, error) {
	s := n.Slice(i, j)
	n = &s
	st := n.Storage()
	out := Plan{dtype: n.Type, Layout: n.Layout, Length: n.Length}
	if err := c.pace.Spend(hostread.NodeWork); err != nil {
		return out, err
	}
	asList := c.asLists && n.Layout.Kind == layout.FixedList
	if sizes, ok := c.block.Whole(n); ok && c.remote && !asList {
		return c.whole(n, sizes)
	}
	if n.Length > 0 && !c.remote {
		sizes, err := hostread.Sizes(c.sizes[:0], n, st)
		if err != nil {
			return out, err
		}
		c.sizes = sizes
		readEnds(n, sizes)
	}
	out.Parts = c.newParts(n)
	if n.Layout.Validity {
		out.Parts = append(out.Parts, c.validity(n, &out))
	} else if n.Layout.Kind == layout.Null {
		out.nulls = n.Length
	}
	err := c.body(n, st, &out)
	return out, err
}

// leastRead is the size from which the end of a buffer is read before memory is allocated for its bytes.
const leastRead = 1 << 20

// readEnds reads the last byte of each large buffer. If a producer announced more than it has, that is a fault here and
// not an allocation that ends the process.
func readEnds(n *tree.Node, sizes []int64) {
	for i, size := range sizes {
		if size >= leastRead && !tree.NoData(n.Buffers[i]) {
			memcopy.ReadByte(n.Buffers[i] + uintptr(size) - 1)
		}
	}
}

// whole takes all buffers of a node of an unsliced copy of this package, which a cut would not change.
func (c *planner) whole(n *tree.Node, sizes []int64) (Plan, error) {
	out := Plan{dtype: n.Type, Layout: n.Layout, Length: n.Length, nulls: n.Nulls}
	if n.Layout.Kind == layout.View {
		sizes = sizes[:len(sizes)-1]
	}
	out.Parts = c.newParts(n)
	for k, size := range sizes {
		p := taken(n.Buffers[k], size)
		p.whole = true
		out.Parts = append(out.Parts, p)
	}
	for k := range n.Children {
		if err := c.child(n, k, 0, n.Children[k].Length, &out); err != nil {
			return out, err
		}
	}
	return out, nil
}

// validity takes the bitmap, unless there are no nulls, and sets the null count.
func (c *planner) validity(n *tree.Node, out *Plan) part {
	addr := n.Validity()
	if addr == 0 || n.Nulls == 0 || n.Length == 0 {
		return part{}
	}
	p := c.bits(addr, n.Offset, n.Length)
	switch {
	case p.Made != nil:
		out.nulls = n.Length - int64(bitutil.CountSetBits(p.Made, 0, int(n.Length)))
	case c.remote:
		out.nulls = n.Nulls
	default:
		out.nulls = c.nullsOf(n) // the null count of the producer is not trusted
	}
	return p
}

// body adds the buffers and children of a node, except its validity bitmap.
func (c *planner) body(n *tree.Node, st arrow.DataType, out *Plan) error {
	switch n.Layout.Kind {
	case layout.Bits:
		out.Parts = append(out.Parts, c.bits(n.Buffers[1], n.Offset, n.Length))
	case layout.Fixed:
		out.Parts = append(out.Parts, fixed(n, st))
	case layout.Dictionary:
		out.Parts = append(out.Parts, fixed(n, st))
		return c.children(n, 0, n.Children[0].Length, out)
	case layout.Binary32:
		return cutBinary[int32](c, n, out)
	case layout.Binary64:
		return cutBinary[int64](c, n, out)
	case layout.View:
		return c.views(n, out)
	case layout.List32:
		return cutList[int32](c, n, out)
	case layout.List64:
		return cutList[int64](c, n, out)
	case layout.ListView32:
		return cutListView[int32](c, n, out)
	case layout.ListView64:
		return cutListView[int64](c, n, out)
	case layout.FixedList:
		width := int64(st.(*arrow.FixedSizeListType).Len())
		if c.asLists {
			out.Layout = &layout.All[layout.List32]
			out.Parts = append(out.Parts, evenOffsets(n.Length, width))
		}
		return c.children(n, n.Offset*width, (n.Offset+n.Length)*width, out)
	case layout.Struct:
		return c.children(n, n.Offset, n.Offset+n.Length, out)
	case layout.Sparse:
		out.Parts = append(out.Parts, taken(n.Buffers[0]+uintptr(n.Offset), n.Length))
		return c.children(n, n.Offset, n.Offset+n.Length, out)
	case layout.Dense:
		return c.denseUnion(n, st.(arrow.UnionType), out)
	case layout.RunEnds:
		return c.runs(n, out)
	}
	return nil // null arrays have only a length
}

// children cuts elements [i, j) out of every child.
func (c *planner) children(n *tree.Node, i, j int64, out *Plan) error {
	for k := range n.Children {
		if err := c.child(n, k, i, j, out); err != nil {
			return err
		}
	}
	return nil
}

func (c *planner) child(n *tree.Node, k int, i, j int64, out *Plan) error {
	child := &n.Children[k]
	if i < 0 || j < i || j > child.Length {
		return fielderr.Invalid(fielderr.OpRead, n.ChildName(k)+".length", child.Length, fmt.Sprintf("elements %d to %d, which the parent uses", i, j))
	}
	cut, err := c.cut(child, i, j)
	if err != nil {
		return fielderr.Within(n.ChildName(k), err)
	}
	out.Children = append(out.Children, cut)
	return nil
}

// fixed takes values of one width, or indices.
func fixed(n *tree.Node, st arrow.DataType) part {
	width := layout.ByteWidth(st)
	return taken(n.Buffers[1]+uintptr(n.Offset*width), n.Length*width)
}

// cutOffsets returns n.Length+1 offsets that start at zero, and the range of the elements that they
// refer to.
func cutOffsets[T hostread.OffsetInt](c *planner, n *tree.Node) (p part, first, last int64, err error) {
	if n.Length == 0 {
		_, p = makePart[T](1)
		return p, 0, 0, nil
	}
	src := hostread.Values[T](n, 1, n.Length+1)
	first, last = int64(src[0]), int64(src[n.Length])
	if first < 0 || last < first {
		return p, 0, 0, fielderr.Invalid(fielderr.OpRead, "offsets", fmt.Sprintf("%d to %d", first, last), "an ascending range")
	}
	if first == 0 && !c.remote {
		var zero T
		size := int64(unsafe.Sizeof(zero))
		return taken(n.Buffers[1]+uintptr(n.Offset*size), (n.Length+1)*size), first, last, nil
	}
	dst, p := makePart[T](n.Length + 1)
	err = c.pace.Parts(len(src), func(from, to int) error {
		for i, v := range src[from:to] {
			dst[from+i] = v - src[0]
		}
		return nil
	})
	return p, first, last, err
}

func cutBinary[T hostread.OffsetInt](c *planner, n *tree.Node, out *Plan) error {
	offsets, first, last, err := cutOffsets[T](c, n)
	if err == nil {
		out.Parts = append(out.Parts, offsets, taken(n.Buffers[2]+uintptr(first), last-first))
	}
	return err
}

func cutList[T hostread.OffsetInt](c *planner, n *tree.Node, out *Plan) error {
	offsets, first, last, err := cutOffsets[T](c, n)
	if err != nil {
		return err
	}
	out.Parts = append(out.Parts, offsets)
	return c.children(n, first, last, out)
}

// denseUnion takes the part of each child between the first and the last element
// that is used, and moves the offsets into it.
func (c *planner) denseUnion(n *tree.Node, dt arrow.UnionType, out *Plan) error {
	dstIDs, idsPart := makePart[arrow.UnionTypeCode](n.Length)
	dst, offsetsPart := makePart[int32](n.Length)
	out.Parts = append(out.Parts, idsPart, offsetsPart)
	used := make([]span, len(n.Children))
	if n.Length > 0 {
		ids, src := hostread.Values[arrow.UnionTypeCode](n, 0, n.Length), hostread.Values[int32](n, 1, n.Length)
		copy(dstIDs, ids)
		child := dt.ChildIDs()
		err := c.pace.Parts(len(ids), func(from, to int) error {
			for i := from; i < to; i++ {
				id := ids[i]
				if id < 0 || child[id] == arrow.InvalidUnionChildID {
					return fielderr.Invalid(fielderr.OpRead, fmt.Sprintf("type_ids[%d]", i), id, fmt.Sprintf("a type id of %s", fielderr.Describe(dt)))
				}
				used[child[id]].add(int64(src[i]), int64(src[i])+1)
			}
			return nil
		})
		if err != nil {
			return err
		}
		err = c.pace.Parts(len(ids), func(from, to int) error {
			for i := from; i < to; i++ {
				dst[i] = src[i] - int32(used[child[ids[i]]].first)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for k, r := range used {
		if err := c.child(n, k, r.first, r.last, out); err != nil {
			return err
		}
	}
	return nil
}

// runs takes the runs that overlap the node's elements, cut to them.
func (c *planner) runs(n *tree.Node, out *Plan) error {
	ends := &n.Children[0]
	first, last := int64(0), int64(0) // runs
	if n.Length > 0 {
		first = findRun(ends, n.Offset)
		last = findRun(ends, n.Offset+n.Length-1) + 1
	}
	if nulls := c.nullsOf(ends); nulls != 0 {
		return fielderr.Invalid(fielderr.OpRead, fielderr.Child(0)+".null_count", nulls, "0: run ends have no nulls")
	}
	if last > ends.Length {
		return fielderr.Invalid(fielderr.OpRead, fielderr.Child(0)+".length", ends.Length, fmt.Sprintf("runs for %d elements", n.Offset+n.Length))
	}
	cut := Plan{dtype: ends.Type, Layout: ends.Layout, Length: last - first}
	moved := cutRunEnds(ends, first, last, n.Offset, n.Length)
	cut.Parts = []part{{}, moved}
	out.Children = append(out.Children, cut)
	return c.child(n, 1, first, last, out)
}

// nullsOf counts the nulls of a node, or returns the null count of the producer if the bitmap cannot be read.
func (c *planner) nullsOf(n *tree.Node) int64 {
	if c.remote {
		return max(n.Nulls, 0)
	}
	return hostread.CountNulls(n)
}

// cutListView takes the part of the child between the first and the last element
// that any list uses, and moves the lists' offsets into it.
func cutListView[T hostread.OffsetInt](c *planner, n *tree.Node, out *Plan) error {
	offsets, offsetsPart := makePart[T](n.Length)
	sizes, sizesPart := makePart[T](n.Length)
	var r span
	if n.Length > 0 {
		srcOffsets, srcSizes := hostread.Values[T](n, 1, n.Length), hostread.Values[T](n, 2, n.Length)
		valid := c.isValid(n)
		err := c.pace.Parts(len(srcOffsets), func(from, to int) error {
			for i := from; i < to; i++ {
				if !valid(i) || srcSizes[i] == 0 {
					continue
				}
				if err := hostread.CheckList(i, srcOffsets[i], srcSizes[i], n.Children[0].Length); err != nil {
					return err
				}
				r.add(int64(srcOffsets[i]), int64(srcOffsets[i])+int64(srcSizes[i]))
			}
			return nil
		})
		if err != nil {
			return err
		}
		err = c.pace.Parts(len(srcOffsets), func(from, to int) error {
			for i := from; i < to; i++ {
				if valid(i) && srcSizes[i] != 0 {
					offsets[i], sizes[i] = srcOffsets[i]-T(r.first), srcSizes[i]
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	out.Parts = append(out.Parts, offsetsPart, sizesPart)
	return c.children(n, r.first, r.last, out)
}

// views takes the part of each data buffer between the first and the last byte
// that any view uses, and leaves out the buffers that none does.
func (c *planner) views(n *tree.Node, out *Plan) error {
	dst, p := makePart[arrow.ViewHeader](n.Length)
	out.Parts = append(out.Parts, p)
	if n.Length == 0 {
		return nil
	}
	src := hostread.Values[arrow.ViewHeader](n, 1, n.Length)
	sizes := abi.Slice[int64](n.Buffers[len(n.Buffers)-1], len(n.Buffers)-3)
	used := make([]span, len(sizes))
	valid := c.isValid(n)
	err := c.pace.Parts(len(src), func(from, to int) error {
		for i := from; i < to; i++ {
			if !valid(i) {
				continue
			}
			dst[i] = src[i]
			if err := c.checkView(n, &src[i], sizes); err != nil {
				return fielderr.Within(fmt.Sprintf("views[%d]", i), err)
			}
			if v := &src[i]; !v.IsInline() {
				used[v.BufferIndex()].add(int64(v.BufferOffset()), int64(v.BufferOffset())+int64(v.Len()))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	index := make([]int32, len(sizes))
	next := int32(0)
	for k, r := range used {
		if r.last > r.first {
			index[k] = next
			next++
			out.Parts = append(out.Parts, taken(n.Buffers[2+k]+uintptr(r.first), r.last-r.first))
		}
	}
	return c.pace.Parts(len(dst), func(from, to int) error {
		for i := from; i < to; i++ {
			if v := &dst[i]; !v.IsInline() {
				v.SetIndexOffset(index[v.BufferIndex()], v.BufferOffset()-int32(used[v.BufferIndex()].first))
			}
		}
		return nil
	})
}

// isValid is hostread.IsValid. It does not read a remote bitmap if there are no nulls.
func (c *planner) isValid(n *tree.Node) func(i int) bool {
	if c.remote && n.Nulls == 0 {
		return func(int) bool { return true }
	}
	return hostread.IsValid(n)
}

// checkView checks that a view is within a buffer, and its prefix, if the data can be read.
func (c *planner) checkView(n *tree.Node, v *arrow.ViewHeader, sizes []int64) error {
	if c.remote {
		return hostread.CheckView(v, sizes)
	}
	_, err := hostread.ViewValue(n, v, sizes)
	return err
}
