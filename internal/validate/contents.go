package validate

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// validator checks the contents of buffers that the CPU can access, for cdevice's
// RecordBatch.ValidateFull. The structs were checked before. HostView and CopyToHost accept every
// tree that it accepts.
type validator struct {
	hostread.Pace
	sizes []int64 // of the buffers of one node; memory that all nodes use
}

func newValidator(ctx context.Context) *validator {
	return &validator{Pace: hostread.Pace{Ctx: ctx, Op: fielderr.OpValidate}}
}

func (v *validator) contents(n *tree.Node) error {
	if err := v.Spend(hostread.NodeWork + len(n.Buffers)); err != nil {
		return err
	}
	if isNumber(n) {
		return v.nullCount(n)
	}
	st := n.Storage()
	// The sizes first: they bound every read that follows.
	sizes, err := hostread.CheckSizes(v.sizes, n)
	if err != nil {
		return err
	}
	v.sizes = sizes
	if err := v.nullCount(n); err != nil {
		return err
	}
	if err := v.own(n, st); err != nil {
		return err
	}
	for i := range n.Children {
		if err := v.contents(&n.Children[i]); err != nil {
			return fielderr.Within(n.ChildName(i), err)
		}
	}
	return checkMap(n, st, v.Nulls)
}

// reads reports whether contents reads memory of a node.
func reads(n *tree.Node) bool { return !isNumber(n) || countsNulls(n) }

// isNumber reports whether every value of a node is one of its type.
func isNumber(n *tree.Node) bool {
	return n.Layout.Kind == layout.Fixed || n.Layout.Kind == layout.Bits
}

// countsNulls reports whether a node has a count of nulls that its bitmap may contradict.
func countsNulls(n *tree.Node) bool {
	return n.Nulls != tree.UnknownNulls && n.Layout.Validity && (n.Nulls != 0 || n.Validity() != 0)
}

func (v *validator) nullCount(n *tree.Node) error {
	if !countsNulls(n) {
		return nil
	}
	counted := *n
	counted.Nulls = tree.UnknownNulls
	nulls, err := v.Nulls(&counted)
	if err == nil && nulls != n.Nulls {
		err = fielderr.Invalid(fielderr.OpValidate, "null_count", n.Nulls, fmt.Sprintf("%d, the nulls in the bitmap", nulls))
	}
	return err
}

// checkMap checks that the entries of a map and their keys have no nulls, if n is one. Nulls that
// no element refers to count too, since consumers check the children as a whole.
func checkMap(n *tree.Node, st arrow.DataType, countNulls func(*tree.Node) (int64, error)) error {
	if n.Layout.Kind != layout.List32 || st.ID() != arrow.MAP {
		return nil
	}
	entries := &n.Children[0]
	nulls, err := countNulls(entries)
	if err != nil {
		return err
	}
	if nulls != 0 {
		return fielderr.Invalid(fielderr.OpValidate, fielderr.Child(0)+".null_count", nulls, "0 for the entries of a map")
	}
	nulls, err = countNulls(&entries.Children[0])
	if err == nil && nulls != 0 {
		err = fielderr.Invalid(fielderr.OpValidate, fielderr.Child(0)+"."+fielderr.Child(0)+".null_count", nulls, "0 for the keys of a map")
	}
	return err
}

func (v *validator) own(n *tree.Node, st arrow.DataType) error {
	if n.Length == 0 {
		return nil
	}
	switch n.Layout.Kind {
	case layout.Dictionary:
		return checkIndices(v, n, st.(*arrow.DictionaryType))
	case layout.Binary32:
		return checkBinary(v, n, st, hostread.Values[int32](n, 1, n.Length+1))
	case layout.Binary64:
		return checkBinary(v, n, st, hostread.Values[int64](n, 1, n.Length+1))
	case layout.List32:
		return hostread.CheckOffsets(&v.Pace, hostread.Values[int32](n, 1, n.Length+1), n.Children[0].Length)
	case layout.List64:
		return hostread.CheckOffsets(&v.Pace, hostread.Values[int64](n, 1, n.Length+1), n.Children[0].Length)
	case layout.ListView32:
		return checkListViews(v, hostread.Values[int32](n, 1, n.Length), hostread.Values[int32](n, 2, n.Length), n.Children[0].Length)
	case layout.ListView64:
		return checkListViews(v, hostread.Values[int64](n, 1, n.Length), hostread.Values[int64](n, 2, n.Length), n.Children[0].Length)
	case layout.View:
		return v.views(n, st)
	case layout.Sparse, layout.Dense:
		return v.union(n, st.(arrow.UnionType))
	case layout.RunEnds:
		return v.runEnds(n)
	}
	return nil
}

func checkBinary[T hostread.OffsetInt](v *validator, n *tree.Node, st arrow.DataType, offsets []T) error {
	// Only the last offset determines the number of bytes.
	if err := hostread.CheckOffsets(&v.Pace, offsets, layout.MaxBufferSize); err != nil {
		return err
	}
	if id := st.ID(); id != arrow.STRING && id != arrow.LARGE_STRING {
		return nil
	}
	data := abi.Slice[byte](n.Buffers[2], int(offsets[len(offsets)-1]))
	valid := hostread.IsValid(n)
	return v.Parts(len(offsets)-1, func(from, to int) error {
		if ok, err := textRows(v, data, offsets[from:to+1]); ok || err != nil {
			return err
		}
		for i := from; i < to; i++ {
			if !valid(i) {
				continue
			}
			if ok, err := v.ValidUTF8(data[offsets[i]:offsets[i+1]]); err != nil {
				return err
			} else if !ok {
				return notUTF8(i)
			}
		}
		return nil
	})
}

func notUTF8(i int) error {
	return fielderr.Invalid(fielderr.OpValidate, fmt.Sprintf("values[%d]", i), nil, "valid UTF-8")
}

func checkListViews[T hostread.OffsetInt](v *validator, offsets, sizes []T, limit int64) error {
	return v.Parts(len(offsets), func(from, to int) error {
		if within(offsets[from:to], sizes[from:to], limit) {
			return nil
		}
		for i := from; i < to; i++ {
			if err := hostread.CheckList(i, offsets[i], sizes[i], limit); err != nil {
				return err
			}
		}
		return nil
	})
}

func (v *validator) union(n *tree.Node, dt arrow.UnionType) error {
	ids := hostread.Values[arrow.UnionTypeCode](n, 0, n.Length)
	children := dt.ChildIDs()
	var offsets []int32
	if n.Layout.Kind == layout.Dense {
		offsets = hostread.Values[int32](n, 1, n.Length)
	}
	var last [int(arrow.MaxUnionTypeCode) + 1]int32
	return v.Parts(len(ids), func(from, to int) error {
		for i := from; i < to; i++ {
			id := ids[i]
			if id < 0 || children[id] == arrow.InvalidUnionChildID {
				return fielderr.Invalid(fielderr.OpValidate, fmt.Sprintf("type_ids[%d]", i), id, fmt.Sprintf("a type id of %s", fielderr.Describe(dt)))
			}
			if offsets == nil {
				continue
			}
			limit := n.Children[children[id]].Length
			if off := offsets[i]; off < last[id] || int64(off) >= limit {
				return fielderr.Invalid(fielderr.OpValidate, fmt.Sprintf("offsets[%d]", i), off, fmt.Sprintf("%d to %d", last[id], limit-1))
			}
			last[id] = offsets[i]
		}
		return nil
	})
}

func checkIndices(v *validator, n *tree.Node, dt *arrow.DictionaryType) error {
	limit := uint64(n.Children[0].Length)
	switch layout.ByteWidth(dt) {
	case 1:
		return checkIndexValues(v, n, dt, hostread.Values[uint8](n, 1, n.Length), limit)
	case 2:
		return checkIndexValues(v, n, dt, hostread.Values[uint16](n, 1, n.Length), limit)
	case 4:
		return checkIndexValues(v, n, dt, hostread.Values[uint32](n, 1, n.Length), limit)
	}
	return checkIndexValues(v, n, dt, hostread.Values[uint64](n, 1, n.Length), limit)
}

// checkIndexValues reads signed indices as unsigned: a negative one is then
// larger than any dictionary can be.
func checkIndexValues[T uint8 | uint16 | uint32 | uint64](v *validator, n *tree.Node, dt *arrow.DictionaryType, indices []T, limit uint64) error {
	signed := !arrow.IsUnsignedInteger(dt.IndexType.ID())
	if signed {
		limit = min(limit, uint64(^T(0)>>1)+1)
	}
	valid := hostread.IsValid(n)
	return v.Parts(len(indices), func(from, to int) error {
		if uint64(largest(indices[from:to])) < limit {
			return nil
		}
		for i := from; i < to; i++ {
			index := indices[i]
			if uint64(index) < limit || !valid(i) {
				continue
			}
			got := any(index)
			if unused := 64 - 8*layout.ByteWidth(dt); signed {
				got = int64(index) << unused >> unused
			}
			return fielderr.Invalid(fielderr.OpValidate, fmt.Sprintf("indices[%d]", i), got, fmt.Sprintf("an index into %d values", limit))
		}
		return nil
	})
}

func (v *validator) runEnds(n *tree.Node) error {
	ends := &n.Children[0]
	if nulls, err := v.Nulls(ends); err != nil {
		return err
	} else if nulls != 0 {
		return fielderr.Invalid(fielderr.OpValidate, fielderr.Child(0)+".null_count", nulls, "0 for run ends")
	}
	previous, need := int64(0), n.Offset+n.Length
	err := v.Parts(int(ends.Length), func(from, to int) error {
		for i := from; i < to; i++ {
			end := hostread.RunEnd(ends, int64(i))
			if end <= previous {
				return fielderr.Invalid(fielderr.OpValidate, fmt.Sprintf("run_ends[%d]", i), end, fmt.Sprintf("more than %d", previous))
			}
			previous = end
		}
		return nil
	})
	if err != nil {
		return err
	}
	if previous < need {
		return fielderr.Invalid(fielderr.OpValidate, fmt.Sprintf("run_ends[%d]", ends.Length-1), previous, fmt.Sprintf("at least %d", need))
	}
	return nil
}
