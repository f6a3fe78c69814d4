package cdevice

import (
	"context"
	"fmt"
	"sort"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// CopyToHost copies the batch into memory of mem (nil: arrow-go's default
// allocator) and returns it as an arrow-go record batch that shares nothing with
// this one. It first waits for the batch's event, if there is one; ctx ends the
// wait with an error.
//
// Only what the rows need is copied: a slice does not drag along what it was cut
// from, and the copy's arrays start at offset zero. Null counts are counted,
// except where the producer says that there are no nulls.
//
// The result is owned by the caller. Errors are [FieldError] where the contents
// do not hold together, and wrap device.ErrNotSupported where the host cannot
// read the memory.
func (b *RecordBatch) CopyToHost(ctx context.Context, mem memory.Allocator) (arrow.RecordBatch, error) {
	if b.refs.Load() <= 0 {
		return nil, readReleased("RecordBatch")
	}
	if err := readyForHost(ctx, b.place); err != nil {
		return nil, err
	}
	columns := make([]arrow.Array, 0, len(b.columns))
	defer func() { releaseAll(columns) }()
	for i := range b.columns {
		column, err := copyArray(&b.columns[i], mem)
		if err != nil {
			return nil, within(fmt.Sprintf("column[%d]", i), err)
		}
		columns = append(columns, column)
	}
	return newHostBatch(b.schema, columns, b.rows)
}

// CopyToHost copies the array; see [RecordBatch.CopyToHost].
func (a *Array) CopyToHost(ctx context.Context, mem memory.Allocator) (arrow.Array, error) {
	if a.refs.Load() <= 0 {
		return nil, readReleased("Array")
	}
	if err := readyForHost(ctx, a.place); err != nil {
		return nil, err
	}
	arr, err := copyArray(&a.node, mem)
	if err != nil {
		return nil, within("array", err)
	}
	return arr, nil
}

func copyArray(n *node, mem memory.Allocator) (arr arrow.Array, err error) {
	if mem == nil {
		mem = memory.DefaultAllocator
	}
	c := copier{mem: mem}
	defer c.release()
	data, err := c.copy(n, 0, n.length)
	if err != nil {
		return nil, during(opRead, err)
	}
	defer recoverArrow(&err, c.abandon)
	return array.MakeFromData(data), nil
}

// copier copies trees out of host-readable memory. It keeps the first reference
// of everything that it makes until release, so that no error path has to.
type copier struct {
	mem     memory.Allocator
	buffers []*memory.Buffer
	data    []*array.Data
}

func (c *copier) release() {
	for _, d := range c.data {
		d.Release()
	}
	for _, b := range c.buffers {
		b.Release()
	}
}

// abandon frees the memory itself, whoever still refers to the buffers: nobody
// can reach them.
func (c *copier) abandon() {
	for _, b := range c.buffers {
		if b.Buf() != nil {
			c.mem.Free(b.Buf())
		}
	}
	c.buffers, c.data = nil, nil
}

// alloc returns a new buffer of size bytes, to be overwritten; the padding behind
// them is zero.
func (c *copier) alloc(size int64) *memory.Buffer {
	buf := memory.NewResizableBuffer(c.mem)
	c.buffers = append(c.buffers, buf)
	buf.Resize(int(size))
	clear(buf.Buf()[size:])
	return buf
}

// zeros returns a new buffer of size zero bytes.
func (c *copier) zeros(size int64) *memory.Buffer {
	buf := c.alloc(size)
	clear(buf.Bytes())
	return buf
}

func (c *copier) bytes(src []byte) *memory.Buffer {
	buf := c.alloc(int64(len(src)))
	copy(buf.Bytes(), src)
	return buf
}

func elements[T any](buf *memory.Buffer) []T {
	var zero T
	b := buf.Bytes()
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

// bits copies bits [from, from+count) of the bitmap at addr to the start of a buffer.
func (c *copier) bits(addr uintptr, from, count int64) *memory.Buffer {
	buf := c.zeros(bitBytes(count))
	if count > 0 {
		bitutil.CopyBitmap(abi.Slice[byte](addr, int(bitBytes(from+count))), int(from), int(count), buf.Bytes(), 0)
	}
	return buf
}

// copy returns elements [i, j) of n as new data at offset zero. The reference is
// the copier's.
func (c *copier) copy(n *node, i, j int64) (*array.Data, error) {
	part := n.slice(i, j)
	n = &part
	st := n.storage()
	if n.length > 0 {
		if _, err := hostSizes(nil, n, st); err != nil {
			return nil, err
		}
	}

	var bitmap *memory.Buffer
	nulls := int64(0)
	if addr := n.validity(); addr != 0 && n.nulls != 0 && n.length > 0 {
		bitmap = c.bits(addr, n.offset, n.length)
		nulls = n.length - int64(bitutil.CountSetBits(bitmap.Bytes(), 0, int(n.length)))
	} else if n.layout.store == storeNull {
		nulls = n.length
	}

	buffers, children, err := c.body(n, st)
	if err != nil {
		return nil, err
	}
	// arrow-go keeps a place for a bitmap also where the type has none.
	buffers = append([]*memory.Buffer{bitmap}, buffers...)
	var data *array.Data
	if n.layout.store == storeDictionary {
		data = array.NewDataWithDictionary(n.dtype, int(n.length), buffers, int(nulls), 0, children[0].(*array.Data))
	} else {
		data = array.NewData(n.dtype, int(n.length), buffers, children, int(nulls), 0)
	}
	c.data = append(c.data, data)
	return data, nil
}

// body copies what belongs to a node besides its validity bitmap.
func (c *copier) body(n *node, st arrow.DataType) ([]*memory.Buffer, []arrow.ArrayData, error) {
	switch n.layout.store {
	case storeBits:
		return one(c.bits(n.buffers[1], n.offset, n.length)), nil, nil
	case storeFixed:
		return one(c.fixed(n, st)), nil, nil
	case storeDictionary:
		dictionary, err := c.children(n, 0, n.children[0].length)
		return one(c.fixed(n, st)), dictionary, err
	case storeBinary32:
		return copyBinary[int32](c, n)
	case storeBinary64:
		return copyBinary[int64](c, n)
	case storeView:
		return c.views(n)
	case storeList32:
		return copyList[int32](c, n)
	case storeList64:
		return copyList[int64](c, n)
	case storeListView:
		return copyListView[int32](c, n)
	case storeListView8:
		return copyListView[int64](c, n)
	case storeFixedList:
		width := int64(st.(*arrow.FixedSizeListType).Len())
		children, err := c.children(n, n.offset*width, (n.offset+n.length)*width)
		return nil, children, err
	case storeStruct:
		children, err := c.children(n, n.offset, n.offset+n.length)
		return nil, children, err
	case storeSparse:
		children, err := c.children(n, n.offset, n.offset+n.length)
		return one(c.bytes(values[byte](n, 0, n.length))), children, err
	case storeDense:
		return c.denseUnion(n, st.(arrow.UnionType))
	case storeRunEnds:
		return c.runs(n)
	}
	return nil, nil, nil // null arrays have no more than a length
}

func one(buf *memory.Buffer) []*memory.Buffer { return []*memory.Buffer{buf} }

// children copies elements [i, j) of every child.
func (c *copier) children(n *node, i, j int64) ([]arrow.ArrayData, error) {
	out := make([]arrow.ArrayData, len(n.children))
	for k := range n.children {
		child, err := c.child(n, k, i, j)
		if err != nil {
			return nil, err
		}
		out[k] = child
	}
	return out, nil
}

func (c *copier) child(n *node, k int, i, j int64) (arrow.ArrayData, error) {
	child := &n.children[k]
	if i < 0 || j < i || j > child.length {
		return nil, invalid(opRead, n.childName(k)+".length", child.length, fmt.Sprintf("elements %d to %d, which the parent uses", i, j))
	}
	data, err := c.copy(child, i, j)
	if err != nil {
		return nil, within(n.childName(k), err)
	}
	return data, nil
}

// fixed copies values of one width, or indices.
func (c *copier) fixed(n *node, st arrow.DataType) *memory.Buffer {
	width := byteWidth(st)
	var src []byte
	if n.length > 0 {
		src = abi.Slice[byte](n.buffers[1]+uintptr(n.offset*width), int(n.length*width))
	}
	return c.bytes(src)
}

// rebase copies n.length+1 offsets so that they start at zero, and returns the
// range of what they point into.
func rebase[T offsetInt](c *copier, n *node) (buf *memory.Buffer, first, last int64, err error) {
	var zero T
	buf = c.alloc((n.length + 1) * int64(unsafe.Sizeof(zero)))
	if n.length == 0 {
		clear(buf.Bytes())
		return buf, 0, 0, nil
	}
	src, dst := values[T](n, 1, n.length+1), elements[T](buf)
	first, last = int64(src[0]), int64(src[n.length])
	if first < 0 || last < first {
		return nil, 0, 0, invalid(opRead, "offsets", fmt.Sprintf("%d to %d", first, last), "an ascending range")
	}
	for i, v := range src {
		dst[i] = v - src[0]
	}
	return buf, first, last, nil
}

func copyBinary[T offsetInt](c *copier, n *node) ([]*memory.Buffer, []arrow.ArrayData, error) {
	offsets, first, last, err := rebase[T](c, n)
	if err != nil {
		return nil, nil, err
	}
	return []*memory.Buffer{offsets, c.bytes(abi.Slice[byte](n.buffers[2], int(last))[first:])}, nil, nil
}

func copyList[T offsetInt](c *copier, n *node) ([]*memory.Buffer, []arrow.ArrayData, error) {
	offsets, first, last, err := rebase[T](c, n)
	if err != nil {
		return nil, nil, err
	}
	children, err := c.children(n, first, last)
	return one(offsets), children, err
}

// copyListView copies the part of the child between the first and the last
// element that any list uses, and moves the lists' offsets into it.
func copyListView[T offsetInt](c *copier, n *node) ([]*memory.Buffer, []arrow.ArrayData, error) {
	var zero T
	offsets, sizes := c.zeros(n.length*int64(unsafe.Sizeof(zero))), c.zeros(n.length*int64(unsafe.Sizeof(zero)))
	var r span
	if n.length > 0 {
		srcOffsets, srcSizes := values[T](n, 1, n.length), values[T](n, 2, n.length)
		valid := isValid(n)
		for i := range srcOffsets {
			if !valid(i) || srcSizes[i] == 0 {
				continue
			}
			if err := checkListView(i, srcOffsets[i], srcSizes[i], n.children[0].length); err != nil {
				return nil, nil, err
			}
			r.add(int64(srcOffsets[i]), int64(srcOffsets[i])+int64(srcSizes[i]))
		}
		dstOffsets, dstSizes := elements[T](offsets), elements[T](sizes)
		for i := range srcOffsets {
			if valid(i) && srcSizes[i] != 0 {
				dstOffsets[i], dstSizes[i] = srcOffsets[i]-T(r.first), srcSizes[i]
			}
		}
	}
	children, err := c.children(n, r.first, r.last)
	return []*memory.Buffer{offsets, sizes}, children, err
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

// views copies the part of each data buffer between the first and the last byte
// that any view uses, and leaves out the buffers that none does.
func (c *copier) views(n *node) ([]*memory.Buffer, []arrow.ArrayData, error) {
	buf := c.zeros(n.length * viewSize)
	if n.length == 0 {
		return one(buf), nil, nil
	}
	src, dst := values[arrow.ViewHeader](n, 1, n.length), elements[arrow.ViewHeader](buf)
	sizes := abi.Slice[int64](n.buffers[len(n.buffers)-1], len(n.buffers)-3)
	used := make([]span, len(sizes))
	valid := isValid(n)
	for i := range src {
		if !valid(i) {
			continue
		}
		dst[i] = src[i]
		if _, err := viewValue(n, &src[i], sizes); err != nil {
			return nil, nil, within(fmt.Sprintf("views[%d]", i), err)
		}
		if v := &src[i]; !v.IsInline() {
			used[v.BufferIndex()].add(int64(v.BufferOffset()), int64(v.BufferOffset())+int64(v.Len()))
		}
	}
	buffers := one(buf)
	index := make([]int32, len(sizes))
	for k, r := range used {
		if r.last > r.first {
			index[k] = int32(len(buffers) - 1)
			buffers = append(buffers, c.bytes(abi.Slice[byte](n.buffers[2+k], int(r.last))[r.first:]))
		}
	}
	for i := range dst {
		if v := &dst[i]; !v.IsInline() {
			v.SetIndexOffset(index[v.BufferIndex()], v.BufferOffset()-int32(used[v.BufferIndex()].first))
		}
	}
	return buffers, nil, nil
}

// denseUnion copies the part of each child between the first and the last
// element that is used, and moves the offsets into it.
func (c *copier) denseUnion(n *node, dt arrow.UnionType) ([]*memory.Buffer, []arrow.ArrayData, error) {
	offsets := c.alloc(n.length * 4)
	var ids []arrow.UnionTypeCode
	used := make([]span, len(n.children))
	if n.length > 0 {
		ids = values[arrow.UnionTypeCode](n, 0, n.length)
		src, dst := values[int32](n, 1, n.length), elements[int32](offsets)
		child := dt.ChildIDs()
		for i, id := range ids {
			if id < 0 || child[id] == arrow.InvalidUnionChildID {
				return nil, nil, invalid(opRead, fmt.Sprintf("type_ids[%d]", i), id, fmt.Sprintf("a type id of %s", dt))
			}
			used[child[id]].add(int64(src[i]), int64(src[i])+1)
		}
		for i, id := range ids {
			dst[i] = src[i] - int32(used[child[id]].first)
		}
	}
	children := make([]arrow.ArrayData, len(n.children))
	for k, r := range used {
		var err error
		if children[k], err = c.child(n, k, r.first, r.last); err != nil {
			return nil, nil, err
		}
	}
	idBytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(ids))), len(ids))
	return []*memory.Buffer{c.bytes(idBytes), offsets}, children, nil
}

// runs copies the runs that overlap the node's elements, cut to them.
func (c *copier) runs(n *node) ([]*memory.Buffer, []arrow.ArrayData, error) {
	ends := &n.children[0]
	first, last := int64(0), int64(0) // runs
	if n.length > 0 {
		if _, err := hostSizes(nil, ends, ends.storage()); err != nil {
			return nil, nil, within(childName(0), err)
		}
		first = findRun(ends, n.offset)
		last = findRun(ends, n.offset+n.length-1) + 1
	}
	values, err := c.child(n, 1, first, last)
	if err != nil {
		return nil, nil, err
	}
	cut, err := c.child(n, 0, first, last)
	if err != nil {
		return nil, nil, err
	}
	moveRunEnds(cut.(*array.Data), n.offset, n.length)
	return nil, []arrow.ArrayData{cut, values}, nil
}

// findRun returns the run that holds the element, or the number of runs.
func findRun(ends *node, element int64) int64 {
	return int64(sort.Search(int(ends.length), func(i int) bool { return runEnd(ends, int64(i)) > element }))
}

// moveRunEnds subtracts by from run ends and cuts them at length.
func moveRunEnds(ends *array.Data, by, length int64) {
	buf := ends.Buffers()[1]
	switch byteWidth(storageType(ends.DataType())) {
	case 2:
		moveEnds(elements[int16](buf), by, length)
	case 4:
		moveEnds(elements[int32](buf), by, length)
	default:
		moveEnds(elements[int64](buf), by, length)
	}
}

func moveEnds[T int16 | int32 | int64](ends []T, by, length int64) {
	for i, end := range ends {
		ends[i] = T(min(int64(end)-by, length))
	}
}
