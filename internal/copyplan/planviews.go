package copyplan

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Plans of arrays whose elements have positions of their own: list views and views.

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

// span is the smallest range that covers the ranges added to it.
type span struct{ first, last int64 }

func (s *span) add(i, j int64) {
	if s.first == s.last {
		s.first, s.last = i, j
		return
	}
	s.first, s.last = min(s.first, i), max(s.last, j)
}

// views takes the part of each data buffer between the first and the last byte
// that any view uses, and leaves out the buffers that none does.
func (c *planner) views(n *tree.Node, out *Plan) error {
	dst, part := makePart[arrow.ViewHeader](n.Length)
	out.Parts = append(out.Parts, part)
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
