package cdevice

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// validator checks what the host-readable buffers of trees hold; see
// [RecordBatch.ValidateFull]. The structs were checked before. What it accepts, HostView and CopyToHost accept.
type validator struct{ pace }

func newValidator(ctx context.Context) *validator {
	return &validator{pace{ctx: ctx, op: fielderr.OpValidate}}
}

func (v *validator) contents(n *node) error {
	if err := v.spend(nodeWork + len(n.buffers)); err != nil {
		return err
	}
	st := n.storage()
	// The sizes first: they bound every read that follows.
	if _, err := hostSizes(nil, n, st); err != nil {
		return err
	}
	if err := v.nullCount(n); err != nil {
		return err
	}
	if err := v.own(n, st); err != nil {
		return err
	}
	for i := range n.children {
		if err := v.contents(&n.children[i]); err != nil {
			return fielderr.Within(n.childName(i), err)
		}
	}
	return checkMap(n, st, v.countNulls)
}

func (v *validator) nullCount(n *node) error {
	if n.nulls == unknownNulls || !n.layout.Validity {
		return nil
	}
	counted := *n
	counted.nulls = unknownNulls
	nulls, err := v.countNulls(&counted)
	if err == nil && nulls != n.nulls {
		err = fielderr.Invalid(fielderr.OpValidate, "null_count", n.nulls, fmt.Sprintf("%d, as the bitmap says", nulls))
	}
	return err
}

// checkMap checks that the entries of a map and their keys have no nulls, if n is one. Those
// that no element refers to count too: readers look at the children as a whole.
func checkMap(n *node, st arrow.DataType, countNulls func(*node) (int64, error)) error {
	if st.ID() != arrow.MAP {
		return nil
	}
	entries := &n.children[0]
	nulls, err := countNulls(entries)
	if err != nil {
		return err
	}
	if nulls != 0 {
		return fielderr.Invalid(fielderr.OpValidate, fielderr.Child(0)+".null_count", nulls, "0 for the entries of a map")
	}
	nulls, err = countNulls(&entries.children[0])
	if err == nil && nulls != 0 {
		err = fielderr.Invalid(fielderr.OpValidate, fielderr.Child(0)+"."+fielderr.Child(0)+".null_count", nulls, "0 for the keys of a map")
	}
	return err
}

// countNulls is the null count; one that is not known is counted in host memory.
func (n *node) countNulls() int64 {
	if n.nulls != unknownNulls {
		return n.nulls
	}
	addr := n.validity()
	if addr == 0 || n.length == 0 {
		return 0
	}
	return n.length - int64(bitutil.CountSetBits(bitmapBytes(addr, n), int(n.offset), int(n.length)))
}

func bitmapBytes(addr uintptr, n *node) []byte {
	return abi.Slice[byte](addr, int(layout.BitBytes(n.offset+n.length)))
}

func (v *validator) own(n *node, st arrow.DataType) error {
	if n.length == 0 {
		return nil
	}
	switch n.layout.Kind {
	case layout.Dictionary:
		return checkIndices(v, n, st.(*arrow.DictionaryType))
	case layout.Binary32:
		return checkBinary(v, n, st, values[int32](n, 1, n.length+1))
	case layout.Binary64:
		return checkBinary(v, n, st, values[int64](n, 1, n.length+1))
	case layout.List32:
		return checkOffsets(v, values[int32](n, 1, n.length+1), n.children[0].length)
	case layout.List64:
		return checkOffsets(v, values[int64](n, 1, n.length+1), n.children[0].length)
	case layout.ListView:
		return checkListViews(v, values[int32](n, 1, n.length), values[int32](n, 2, n.length), n.children[0].length)
	case layout.ListView8:
		return checkListViews(v, values[int64](n, 1, n.length), values[int64](n, 2, n.length), n.children[0].length)
	case layout.View:
		return v.views(n, st)
	case layout.Sparse, layout.Dense:
		return v.union(n, st.(arrow.UnionType))
	case layout.RunEnds:
		return v.runEnds(n)
	}
	return nil
}

// values returns count values of buffer i, from the node's offset on.
func values[T any](n *node, i int, count int64) []T {
	all := abi.Slice[T](n.buffers[i], int(n.offset+count))
	return all[n.offset:]
}

// isValid returns a function that says whether element i of the node is valid.
func isValid(n *node) func(i int) bool {
	addr := n.validity()
	if addr == 0 {
		return func(int) bool { return true }
	}
	bitmap, offset := bitmapBytes(addr, n), int(n.offset)
	return func(i int) bool { return bitutil.BitIsSet(bitmap, offset+i) }
}

type offsetInt interface{ int32 | int64 }

// checkOffsets checks n+1 offsets into limit elements.
func checkOffsets[T offsetInt](v *validator, offsets []T, limit int64) error {
	if offsets[0] < 0 {
		return fielderr.Invalid(fielderr.OpValidate, "offsets[0]", offsets[0], "at least 0")
	}
	last := len(offsets) - 1
	err := v.parts(last, func(from, to int) error {
		for i := from + 1; i <= to; i++ {
			if offsets[i] < offsets[i-1] {
				return fielderr.Invalid(fielderr.OpValidate, fmt.Sprintf("offsets[%d]", i), offsets[i], fmt.Sprintf("at least %d, as before it", offsets[i-1]))
			}
		}
		return nil
	})
	if err == nil && int64(offsets[last]) > limit {
		err = fielderr.Invalid(fielderr.OpValidate, fmt.Sprintf("offsets[%d]", last), offsets[last], fmt.Sprintf("at most %d", limit))
	}
	return err
}

func checkBinary[T offsetInt](v *validator, n *node, st arrow.DataType, offsets []T) error {
	// How many bytes there are, only the last offset says.
	if err := checkOffsets(v, offsets, layout.MaxBufferSize); err != nil {
		return err
	}
	if id := st.ID(); id != arrow.STRING && id != arrow.LARGE_STRING {
		return nil
	}
	data := abi.Slice[byte](n.buffers[2], int(offsets[len(offsets)-1]))
	valid := isValid(n)
	return v.parts(len(offsets)-1, func(from, to int) error {
		for i := from; i < to; i++ {
			if !valid(i) {
				continue
			}
			if ok, err := v.validUTF8(data[offsets[i]:offsets[i+1]]); err != nil {
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

func checkListViews[T offsetInt](v *validator, offsets, sizes []T, limit int64) error {
	return v.parts(len(offsets), func(from, to int) error {
		for i := from; i < to; i++ {
			if err := checkListView(i, offsets[i], sizes[i], limit); err != nil {
				return err
			}
		}
		return nil
	})
}

// checkListView checks that list i lies within a child of limit elements.
func checkListView[T offsetInt](i int, offset, size T, limit int64) error {
	off, count := int64(offset), int64(size)
	if off < 0 || off > limit {
		return fielderr.Invalid(fielderr.OpValidate, fmt.Sprintf("offsets[%d]", i), off, fmt.Sprintf("0 to %d", limit))
	}
	if count < 0 || count > limit-off {
		return fielderr.Invalid(fielderr.OpValidate, fmt.Sprintf("sizes[%d]", i), count, fmt.Sprintf("0 to %d", limit-off))
	}
	return nil
}

func (v *validator) union(n *node, dt arrow.UnionType) error {
	ids := values[arrow.UnionTypeCode](n, 0, n.length)
	children := dt.ChildIDs()
	var offsets []int32
	if n.layout.Kind == layout.Dense {
		offsets = values[int32](n, 1, n.length)
	}
	var last [int(arrow.MaxUnionTypeCode) + 1]int32
	return v.parts(len(ids), func(from, to int) error {
		for i := from; i < to; i++ {
			id := ids[i]
			if id < 0 || children[id] == arrow.InvalidUnionChildID {
				return fielderr.Invalid(fielderr.OpValidate, fmt.Sprintf("type_ids[%d]", i), id, fmt.Sprintf("a type id of %s", fielderr.Describe(dt)))
			}
			if offsets == nil {
				continue
			}
			limit := n.children[children[id]].length
			if off := offsets[i]; off < last[id] || int64(off) >= limit {
				return fielderr.Invalid(fielderr.OpValidate, fmt.Sprintf("offsets[%d]", i), off, fmt.Sprintf("%d to %d", last[id], limit-1))
			}
			last[id] = offsets[i]
		}
		return nil
	})
}

func checkIndices(v *validator, n *node, dt *arrow.DictionaryType) error {
	limit := uint64(n.children[0].length)
	switch layout.ByteWidth(dt) {
	case 1:
		return checkIndexValues(v, n, dt, values[uint8](n, 1, n.length), limit)
	case 2:
		return checkIndexValues(v, n, dt, values[uint16](n, 1, n.length), limit)
	case 4:
		return checkIndexValues(v, n, dt, values[uint32](n, 1, n.length), limit)
	}
	return checkIndexValues(v, n, dt, values[uint64](n, 1, n.length), limit)
}

// checkIndexValues reads signed indices as unsigned: a negative one is then
// larger than any dictionary can be.
func checkIndexValues[T uint8 | uint16 | uint32 | uint64](v *validator, n *node, dt *arrow.DictionaryType, indices []T, limit uint64) error {
	signed := !arrow.IsUnsignedInteger(dt.IndexType.ID())
	if signed {
		limit = min(limit, uint64(^T(0)>>1)+1)
	}
	valid := isValid(n)
	return v.parts(len(indices), func(from, to int) error {
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

func (v *validator) runEnds(n *node) error {
	ends := &n.children[0]
	if _, err := hostSizes(nil, ends, ends.storage()); err != nil {
		return fielderr.Within(fielderr.Child(0), err)
	}
	if nulls, err := v.countNulls(ends); err != nil {
		return err
	} else if nulls != 0 {
		return fielderr.Invalid(fielderr.OpValidate, fielderr.Child(0)+".null_count", nulls, "0 for run ends")
	}
	previous, need := int64(0), n.offset+n.length
	err := v.parts(int(ends.length), func(from, to int) error {
		for i := from; i < to; i++ {
			end := runEnd(ends, int64(i))
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
		return fielderr.Invalid(fielderr.OpValidate, fmt.Sprintf("run_ends[%d]", ends.length-1), previous, fmt.Sprintf("at least %d", need))
	}
	return nil
}

// runEnd reads run end i of the run ends array.
func runEnd(ends *node, i int64) int64 {
	at := uintptr(ends.offset + i)
	switch layout.ByteWidth(layout.StorageType(ends.dtype)) {
	case 2:
		return int64(*abi.At[int16](ends.buffers[1] + at*2))
	case 4:
		return int64(*abi.At[int32](ends.buffers[1] + at*4))
	}
	return *abi.At[int64](ends.buffers[1] + at*8)
}
