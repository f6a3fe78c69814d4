package foreign

// #include "foreign.h"
import "C"

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Fetch returns a copy of size bytes at an address of the array's device.
type Fetch func(address uintptr, size int) ([]byte, error)

// FromHost is the Fetch of memory that the CPU can access.
func FromHost(address uintptr, size int) ([]byte, error) {
	return append([]byte(nil), unsafe.Slice((*byte)(pointer(address)), size)...), nil
}

// OnThread is FromHost, for which a thread that Go has never seen reads the bytes, too.
func OnThread(address uintptr, size int) ([]byte, error) {
	bytes, _ := FromHost(address, size)
	var sum uint64
	for _, b := range bytes {
		sum += uint64(b)
	}
	if got := uint64(C.foreign_sum_on_thread(pointer(address), C.size_t(size))); got != sum {
		return nil, fmt.Errorf("foreign: %d bytes at %#x have the sum %d on another thread, not %d", size, address, got, sum)
	}
	return bytes, nil
}

// Read copies the array that the struct describes to Go memory.
func Read(a *cdata.CArrowArray, dt arrow.DataType, fetch Fetch) (arr arrow.Array, err error) {
	data, err := read((*C.struct_ArrowArray)(unsafe.Pointer(a)), dt, fetch)
	if err != nil {
		return nil, err
	}
	defer data.Release()
	return array.MakeFromData(data), nil
}

// node reads one struct.
type node struct {
	a     *C.struct_ArrowArray
	dt    arrow.DataType // without extensions
	fetch Fetch
	bufs  []*memory.Buffer
	err   error
}

func read(a *C.struct_ArrowArray, dt arrow.DataType, fetch Fetch) (*array.Data, error) {
	if a == nil || a.release == nil {
		return nil, fmt.Errorf("foreign: %v: a released array", dt)
	}
	n := &node{a: a, dt: storage(dt), fetch: fetch}
	n.buffers()
	var children []arrow.ArrayData
	types := childTypes(n.dt)
	if n.err == nil && int(a.n_children) != len(types) {
		n.err = fmt.Errorf("foreign: %v: %d children", dt, a.n_children)
	}
	for i := 0; n.err == nil && i < len(types); i++ {
		child, err := read(unsafe.Slice(a.children, len(types))[i], types[i], fetch)
		if n.err = err; err == nil {
			defer child.Release()
			children = append(children, child)
		}
	}
	if d, ok := n.dt.(*arrow.DictionaryType); ok && n.err == nil {
		dict, err := read(a.dictionary, d.ValueType, fetch)
		if err != nil {
			return nil, err
		}
		defer dict.Release()
		return array.NewDataWithDictionary(dt, int(a.length), n.bufs, int(a.null_count), int(a.offset), dict), nil
	}
	if n.err != nil {
		return nil, n.err
	}
	return array.NewData(dt, int(a.length), n.bufs, children, int(a.null_count), int(a.offset)), nil
}

func childTypes(dt arrow.DataType) (types []arrow.DataType) {
	if nested, ok := dt.(arrow.NestedType); ok {
		for _, f := range nested.Fields() {
			types = append(types, f.Type)
		}
	}
	return types
}

// take appends a copy of buffer i, of a size, to the list.
func (n *node) take(i int, size int) []byte {
	if n.err != nil {
		return nil
	}
	if i >= int(n.a.n_buffers) {
		n.err = fmt.Errorf("foreign: %v: %d buffers, no buffer %d", n.dt, n.a.n_buffers, i)
		return nil
	}
	address := uintptr(unsafe.Slice(n.a.buffers, n.a.n_buffers)[i])
	if address == 0 {
		if size > 0 && i > 0 {
			n.err = fmt.Errorf("foreign: %v: buffer %d is NULL, want %d bytes", n.dt, i, size)
		}
		n.bufs = append(n.bufs, nil)
		return nil
	}
	var bytes []byte
	if size > 0 {
		bytes, n.err = n.fetch(address, size)
	}
	n.bufs = append(n.bufs, memory.NewBufferBytes(bytes))
	return bytes
}

func (n *node) buffers() {
	end := int(n.a.length + n.a.offset)
	switch t := n.dt.(type) {
	case *arrow.NullType:
		n.bufs = []*memory.Buffer{nil}
		return
	case *arrow.RunEndEncodedType:
		n.bufs = []*memory.Buffer{nil}
		return
	case *arrow.SparseUnionType:
		n.bufs = []*memory.Buffer{nil}
		n.take(0, end)
		return
	case *arrow.DenseUnionType:
		n.bufs = []*memory.Buffer{nil}
		n.take(0, end)
		n.take(1, 4*end)
		return
	default:
		n.take(0, int(bitutil.BytesForBits(int64(end))))
		n.contents(t, end)
	}
}

// contents takes the buffers after the validity bitmap.
func (n *node) contents(dt arrow.DataType, end int) {
	switch t := dt.(type) {
	case *arrow.BinaryType, *arrow.StringType:
		n.take(2, n.lastOffset(end, 4))
	case *arrow.LargeBinaryType, *arrow.LargeStringType:
		n.take(2, n.lastOffset(end, 8))
	case *arrow.ListType, *arrow.MapType:
		n.lastOffset(end, 4)
	case *arrow.LargeListType:
		n.lastOffset(end, 8)
	case *arrow.ListViewType:
		n.take(1, 4*end)
		n.take(2, 4*end)
	case *arrow.LargeListViewType:
		n.take(1, 8*end)
		n.take(2, 8*end)
	case *arrow.BinaryViewType, *arrow.StringViewType:
		n.views(end)
	case *arrow.StructType, *arrow.FixedSizeListType:
	case *arrow.DictionaryType:
		n.contents(t.IndexType, end)
	case arrow.FixedWidthDataType:
		n.take(1, int(bitutil.BytesForBits(int64(end*t.BitWidth()))))
	default:
		n.err = fmt.Errorf("foreign: the type %v", dt)
	}
}

// lastOffset takes the offsets, and returns the last one.
func (n *node) lastOffset(end, width int) int {
	if n.a.length == 0 && unsafe.Slice(n.a.buffers, n.a.n_buffers)[1] == nil {
		n.bufs = append(n.bufs, memory.NewBufferBytes(make([]byte, width)))
		return 0
	}
	bytes := n.take(1, width*(end+1))
	if n.err != nil || len(bytes) == 0 {
		return 0
	}
	if width == 4 {
		return int(binary.NativeEndian.Uint32(bytes[4*end:]))
	}
	return int(binary.NativeEndian.Uint64(bytes[8*end:]))
}

// views takes the views and the buffers that they lead to, of the sizes in the last one, which is memory of the CPU on any device.
func (n *node) views(end int) {
	n.take(1, 16*end)
	count := int(n.a.n_buffers) - 3
	if count < 0 {
		n.err = fmt.Errorf("foreign: %v: %d buffers", n.dt, n.a.n_buffers)
		return
	}
	sizes := uintptr(unsafe.Slice(n.a.buffers, n.a.n_buffers)[count+2])
	for i := range count {
		n.take(2+i, int(unsafe.Slice((*int64)(pointer(sizes)), count)[i]))
	}
}
