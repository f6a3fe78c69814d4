package cdevice

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// checkContents checks what the host-readable buffers of a tree hold; see
// [WithFullValidation]. The structs were checked before.
func checkContents(n *node) error {
	st := n.storage()
	// The sizes first: they bound every read that follows.
	if _, err := hostSizes(nil, n, st); err != nil {
		return err
	}
	if err := checkNullCount(n); err != nil {
		return err
	}
	if err := checkOwnContents(n, st); err != nil {
		return err
	}
	for i := range n.children {
		if err := checkContents(&n.children[i]); err != nil {
			return within(n.childName(i), err)
		}
	}
	return nil
}

func checkNullCount(n *node) error {
	if n.nulls == unknownNulls || !n.layout.validity {
		return nil
	}
	counted := *n
	counted.nulls = unknownNulls
	if nulls := counted.countNulls(); nulls != n.nulls {
		return invalid(opImport, "null_count", n.nulls, fmt.Sprintf("%d, as the bitmap says", nulls))
	}
	return nil
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
	return abi.Slice[byte](addr, int(bitBytes(n.offset+n.length)))
}

func checkOwnContents(n *node, st arrow.DataType) error {
	if n.length == 0 {
		return nil
	}
	switch n.layout.store {
	case storeDictionary:
		return checkIndices(n, st.(*arrow.DictionaryType))
	case storeBinary32:
		return checkBinary(n, st, values[int32](n, 1, n.length+1))
	case storeBinary64:
		return checkBinary(n, st, values[int64](n, 1, n.length+1))
	case storeList32:
		return checkOffsets(values[int32](n, 1, n.length+1), n.children[0].length)
	case storeList64:
		return checkOffsets(values[int64](n, 1, n.length+1), n.children[0].length)
	case storeListView:
		return checkListViews(values[int32](n, 1, n.length), values[int32](n, 2, n.length), n.children[0].length)
	case storeListView8:
		return checkListViews(values[int64](n, 1, n.length), values[int64](n, 2, n.length), n.children[0].length)
	case storeView:
		return checkViews(n, st)
	case storeSparse, storeDense:
		return checkUnion(n, st.(arrow.UnionType))
	case storeRunEnds:
		return checkRunEnds(n)
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
func checkOffsets[T offsetInt](offsets []T, limit int64) error {
	if offsets[0] < 0 {
		return invalid(opImport, "offsets[0]", offsets[0], "at least 0")
	}
	for i := 1; i < len(offsets); i++ {
		if offsets[i] < offsets[i-1] {
			return invalid(opImport, fmt.Sprintf("offsets[%d]", i), offsets[i], fmt.Sprintf("at least %d, as before it", offsets[i-1]))
		}
	}
	if last := len(offsets) - 1; int64(offsets[last]) > limit {
		return invalid(opImport, fmt.Sprintf("offsets[%d]", last), offsets[last], fmt.Sprintf("at most %d", limit))
	}
	return nil
}

func checkBinary[T offsetInt](n *node, st arrow.DataType, offsets []T) error {
	// How many bytes there are, only the last offset says.
	if err := checkOffsets(offsets, maxBufferSize); err != nil {
		return err
	}
	if id := st.ID(); id != arrow.STRING && id != arrow.LARGE_STRING {
		return nil
	}
	data := abi.Slice[byte](n.buffers[2], int(offsets[len(offsets)-1]))
	valid := isValid(n)
	for i := range offsets[1:] {
		if s := data[offsets[i]:offsets[i+1]]; valid(i) && !utf8.Valid(s) {
			return notUTF8(i)
		}
	}
	return nil
}

func notUTF8(i int) error {
	return invalid(opImport, fmt.Sprintf("values[%d]", i), nil, "valid UTF-8")
}

func checkListViews[T offsetInt](offsets, sizes []T, limit int64) error {
	for i := range offsets {
		if err := checkListView(i, offsets[i], sizes[i], limit); err != nil {
			return err
		}
	}
	return nil
}

// checkListView checks that list i lies within a child of limit elements.
func checkListView[T offsetInt](i int, offset, size T, limit int64) error {
	off, count := int64(offset), int64(size)
	if off < 0 || off > limit {
		return invalid(opImport, fmt.Sprintf("offsets[%d]", i), off, fmt.Sprintf("0 to %d", limit))
	}
	if count < 0 || count > limit-off {
		return invalid(opImport, fmt.Sprintf("sizes[%d]", i), count, fmt.Sprintf("0 to %d", limit-off))
	}
	return nil
}

func checkViews(n *node, st arrow.DataType) error {
	views := values[arrow.ViewHeader](n, 1, n.length)
	sizes := abi.Slice[int64](n.buffers[len(n.buffers)-1], len(n.buffers)-3)
	text := st.ID() == arrow.STRING_VIEW
	valid := isValid(n)
	for i := range views {
		if !valid(i) {
			continue
		}
		value, err := viewValue(n, &views[i], sizes)
		if err != nil {
			return within(fmt.Sprintf("views[%d]", i), err)
		}
		if text && !utf8.Valid(value) {
			return notUTF8(i)
		}
	}
	return nil
}

// checkView checks where a view points.
func checkView(v *arrow.ViewHeader, sizes []int64) error {
	size := v.Len()
	if size < 0 {
		return invalid(opImport, "length", size, "at least 0")
	}
	if v.IsInline() {
		return nil
	}
	index, off := int64(v.BufferIndex()), int64(v.BufferOffset())
	if index < 0 || index >= int64(len(sizes)) {
		return invalid(opImport, "buffer_index", index, fmt.Sprintf("0 to %d", len(sizes)-1))
	}
	if off < 0 || off > sizes[index]-int64(size) {
		return invalid(opImport, "offset", off, fmt.Sprintf("0 to %d", sizes[index]-int64(size)))
	}
	return nil
}

// viewValue returns the bytes of one view, after checking where it points.
func viewValue(n *node, v *arrow.ViewHeader, sizes []int64) ([]byte, error) {
	if err := checkView(v, sizes); err != nil {
		return nil, err
	}
	if v.IsInline() {
		return v.InlineBytes(), nil
	}
	value := abi.Slice[byte](n.buffers[2+v.BufferIndex()]+uintptr(v.BufferOffset()), v.Len())
	if prefix := v.Prefix(); !bytes.HasPrefix(value, prefix[:]) {
		return nil, invalid(opImport, "prefix", prefix, fmt.Sprintf("%v, as the data says", value[:len(prefix)]))
	}
	return value, nil
}

func checkUnion(n *node, dt arrow.UnionType) error {
	ids := values[arrow.UnionTypeCode](n, 0, n.length)
	children := dt.ChildIDs()
	var offsets []int32
	if n.layout.store == storeDense {
		offsets = values[int32](n, 1, n.length)
	}
	var last [int(arrow.MaxUnionTypeCode) + 1]int32
	for i, id := range ids {
		if id < 0 || children[id] == arrow.InvalidUnionChildID {
			return invalid(opImport, fmt.Sprintf("type_ids[%d]", i), id, fmt.Sprintf("a type id of %s", typeText(dt)))
		}
		if offsets == nil {
			continue
		}
		limit := n.children[children[id]].length
		if off := offsets[i]; off < last[id] || int64(off) >= limit {
			return invalid(opImport, fmt.Sprintf("offsets[%d]", i), off, fmt.Sprintf("%d to %d", last[id], limit-1))
		}
		last[id] = offsets[i]
	}
	return nil
}

func checkIndices(n *node, dt *arrow.DictionaryType) error {
	limit := uint64(n.children[0].length)
	switch byteWidth(dt) {
	case 1:
		return checkIndexValues(n, dt, values[uint8](n, 1, n.length), limit)
	case 2:
		return checkIndexValues(n, dt, values[uint16](n, 1, n.length), limit)
	case 4:
		return checkIndexValues(n, dt, values[uint32](n, 1, n.length), limit)
	}
	return checkIndexValues(n, dt, values[uint64](n, 1, n.length), limit)
}

// checkIndexValues reads signed indices as unsigned: a negative one is then
// larger than any dictionary can be.
func checkIndexValues[T uint8 | uint16 | uint32 | uint64](n *node, dt *arrow.DictionaryType, indices []T, limit uint64) error {
	signed := !arrow.IsUnsignedInteger(dt.IndexType.ID())
	if signed {
		limit = min(limit, uint64(^T(0)>>1)+1)
	}
	valid := isValid(n)
	for i, index := range indices {
		if uint64(index) >= limit && valid(i) {
			got := any(index)
			if unused := 64 - 8*byteWidth(dt); signed {
				got = int64(index) << unused >> unused
			}
			return invalid(opImport, fmt.Sprintf("indices[%d]", i), got, fmt.Sprintf("an index into %d values", limit))
		}
	}
	return nil
}

func checkRunEnds(n *node) error {
	ends := &n.children[0]
	if _, err := hostSizes(nil, ends, ends.storage()); err != nil {
		return within(childName(0), err)
	}
	if nulls := ends.countNulls(); nulls != 0 {
		return invalid(opImport, childName(0)+".null_count", nulls, "0 for run ends")
	}
	previous, need := int64(0), n.offset+n.length
	for i := range ends.length {
		end := runEnd(ends, i)
		if end <= previous {
			return invalid(opImport, fmt.Sprintf("run_ends[%d]", i), end, fmt.Sprintf("more than %d", previous))
		}
		previous = end
	}
	if previous < need {
		return invalid(opImport, fmt.Sprintf("run_ends[%d]", ends.length-1), previous, fmt.Sprintf("at least %d", need))
	}
	return nil
}

// runEnd reads run end i of the run ends array.
func runEnd(ends *node, i int64) int64 {
	at := uintptr(ends.offset + i)
	switch byteWidth(storageType(ends.dtype)) {
	case 2:
		return int64(*abi.At[int16](ends.buffers[1] + at*2))
	case 4:
		return int64(*abi.At[int32](ends.buffers[1] + at*4))
	}
	return *abi.At[int64](ends.buffers[1] + at*8)
}
