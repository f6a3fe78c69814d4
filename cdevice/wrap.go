package cdevice

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// Wrap makes a batch of an arrow-go record batch without copying: dev says what
// kind of memory the columns were built in. That is [device.Host] for every
// ordinary batch; a device whose memory the host can read (pinned, managed) for
// columns that were built with that device's allocator.
//
// The batch holds a reference to rec until its last Release; rec stays the
// caller's. Memory of the Go heap is pinned once, here, for all exports to come.
//
// Nothing is read but buffer addresses and lengths, and null counts that rec
// already knows: Wrap may be called while the memory is being filled.
//
// An error wraps arrow.ErrInvalid or arrow.ErrNotImplemented where a column is
// not laid out as its type demands.
func Wrap(rec arrow.RecordBatch, dev device.Device) (*RecordBatch, error) {
	if rec == nil || dev == nil {
		return nil, fmt.Errorf("cdevice: wrap: a record batch and a device are needed: %w", arrow.ErrInvalid)
	}
	if err := checkWrapDevice(dev); err != nil {
		return nil, err
	}
	w := wrapper{rows: rec.NumRows()}
	for i, col := range rec.Columns() {
		if err := w.measureAll(col); err != nil {
			return nil, within(fmt.Sprintf("column[%d]", i), err)
		}
	}
	rec.Retain()
	w.start(adoptGo(rec))
	columns := w.takeNodes(int(rec.NumCols()))
	for i, col := range rec.Columns() {
		if err := w.fill(&columns[i], col.Data()); err != nil {
			w.mem.Release()
			return nil, within(fmt.Sprintf("column[%d]", i), err)
		}
		if columns[i].length < w.rows {
			w.mem.Release()
			return nil, invalid(opWrap, fmt.Sprintf("column[%d].length", i), columns[i].length, w.rows)
		}
		if columns[i].length > w.rows {
			columns[i] = columns[i].slice(0, w.rows)
		}
	}
	b := newRecordBatch(w.mem, place{id: dev.ID()}, rec.Schema(), w.rows, columns)
	b.host = rec
	return b, nil
}

// WrapArray is [Wrap] for one array.
func WrapArray(arr arrow.Array, dev device.Device) (*Array, error) {
	if arr == nil || dev == nil {
		return nil, fmt.Errorf("cdevice: wrap: an array and a device are needed: %w", arrow.ErrInvalid)
	}
	if err := checkWrapDevice(dev); err != nil {
		return nil, err
	}
	var w wrapper
	if err := w.measureAll(arr); err != nil {
		return nil, within("array", err)
	}
	arr.Retain()
	w.start(adoptGo(arr))
	root := w.takeNodes(1)
	if err := w.fill(&root[0], arr.Data()); err != nil {
		w.mem.Release()
		return nil, within("array", err)
	}
	a := newArray(w.mem, place{id: dev.ID()}, arrow.Field{Type: arr.DataType(), Nullable: true}, root[0])
	a.host = arr
	return a, nil
}

func checkWrapDevice(dev device.Device) error {
	if !dev.HostReadable() {
		return fmt.Errorf("cdevice: wrap: arrow-go's arrays live in host memory, which is not memory of %s: %w", dev.ID(), device.ErrNotSupported)
	}
	return nil
}

// wrapper turns ArrayData into nodes, in two passes: measure counts, so that
// all nodes, all buffer addresses and all view sizes are one allocation each.
type wrapper struct {
	mem  *memoryOwner
	rows int64

	nNodes, nBuffers, nSizes int

	nodes   []node
	buffers []uintptr
	sizes   []int64
}

func (w *wrapper) measureAll(arr arrow.Array) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fieldError(opWrap, "type", nil, nil, fmt.Errorf("%w: the data type panics: %v", arrow.ErrInvalid, v))
		}
	}()
	return w.measure(arr.Data(), 0)
}

func (w *wrapper) measure(data arrow.ArrayData, depth int) error {
	if isNil(data) {
		return invalid(opWrap, "data", "nil", "array data")
	}
	dt, l := layoutOf(data.DataType())
	if l.store == storeUnknown {
		return fieldError(opWrap, "type", nil, nil, unknownType(data.DataType()))
	}
	if depth > maxDepth {
		return fieldError(opWrap, "type", nil, nil, errTooDeep)
	}
	have := len(data.Buffers())
	if !l.validity && have > 0 {
		have-- // arrow-go keeps an empty place for a bitmap that the type does not have
	}
	if l.store == storeView {
		have++ // the sizes
	}
	if have < l.buffers || have > l.buffers && l.store != storeView && l.store != storeNull && l.store != storeRunEnds {
		return invalid(opWrap, "buffers", have, fmt.Sprintf("%d for %s", l.buffers, dt))
	}
	if l.store == storeNull || l.store == storeRunEnds {
		have = 0
	}
	w.nNodes++
	w.nBuffers += have
	if l.store == storeView {
		w.nSizes += have - l.buffers
	}
	if l.store == storeDictionary {
		if isNil(data.Dictionary()) {
			return invalid(opWrap, "dictionary", "nil", fmt.Sprintf("array data for %s", dt))
		}
		return within("dictionary", w.measure(data.Dictionary(), depth+1))
	}
	if want := l.childCount(dt); len(data.Children()) != want {
		return invalid(opWrap, "children", len(data.Children()), fmt.Sprintf("%d for %s", want, dt))
	}
	for i, child := range data.Children() {
		if err := w.measure(child, depth+1); err != nil {
			return within(childName(i), err)
		}
	}
	return nil
}

// isNil also sees the nil *array.Data that arrow-go hides in a non-nil interface.
func isNil(data arrow.ArrayData) bool {
	if data == nil {
		return true
	}
	d, ok := data.(*array.Data)
	return ok && d == nil
}

func (w *wrapper) start(mem *memoryOwner) {
	w.mem = mem
	w.nodes = make([]node, w.nNodes)
	if w.nBuffers > 0 {
		w.buffers = make([]uintptr, w.nBuffers)
		mem.pin(&w.buffers[0])
	}
	if w.nSizes > 0 {
		w.sizes = make([]int64, w.nSizes)
		mem.pin(&w.sizes[0])
	}
}

func take[T any](from *[]T, n int) []T {
	head := (*from)[:n:n]
	*from = (*from)[n:]
	return head
}

func (w *wrapper) takeNodes(n int) []node { return take(&w.nodes, n) }

func (w *wrapper) fill(n *node, data arrow.ArrayData) error {
	dt, l := layoutOf(data.DataType())
	length, offset := int64(data.Len()), int64(data.Offset())
	if length < 0 || offset < 0 || offset > math.MaxInt64-length {
		return invalid(opWrap, "offset", fmt.Sprintf("%d with length %d", offset, length), "a range")
	}
	n.dtype, n.layout, n.length, n.offset = data.DataType(), l, length, offset

	buffers := data.Buffers()
	switch {
	case l.store == storeNull || l.store == storeRunEnds:
		buffers = nil
	case !l.validity:
		buffers = buffers[1:]
	}
	count := len(buffers)
	if l.store == storeView {
		count++
	}
	n.buffers = take(&w.buffers, count)
	for i, buf := range buffers {
		addr := w.address(buf)
		if addr == 0 && !(l.validity && i == 0) {
			addr = bridge.Zeros // see withoutNulls
		}
		n.buffers[i] = addr
		if need := leastSize(dt, l, i, offset+length); length > 0 && addr != 0 && bufferLen(buf) < need {
			return invalid(opWrap, fmt.Sprintf("buffers[%d].length", i), bufferLen(buf), fmt.Sprintf("at least %d", need))
		}
	}
	if l.store == storeView {
		sizes := take(&w.sizes, len(buffers)-2)
		for i, buf := range buffers[2:] {
			sizes[i] = bufferLen(buf)
		}
		n.buffers[count-1] = bridge.Zeros
		if len(sizes) > 0 {
			n.buffers[count-1] = uintptr(unsafe.Pointer(&sizes[0]))
		}
	}
	n.nulls = knownNulls(l, length, int64(data.NullN()), n.validity())
	if n.nulls < unknownNulls || n.nulls > length {
		return invalid(opWrap, "null_count", n.nulls, fmt.Sprintf("-1 to %d", length))
	}
	return w.fillChildren(n, dt, data)
}

func (w *wrapper) fillChildren(n *node, dt arrow.DataType, data arrow.ArrayData) error {
	if n.layout.store == storeDictionary {
		n.children = w.takeNodes(1)
		return within("dictionary", w.fill(&n.children[0], data.Dictionary()))
	}
	children := data.Children()
	if len(children) == 0 {
		return nil
	}
	n.children = w.takeNodes(len(children))
	for i, child := range children {
		if err := w.fill(&n.children[i], child); err != nil {
			return within(childName(i), err)
		}
		if want := childLength(dt, n.offset+n.length); n.children[i].length < want {
			return invalid(opWrap, childName(i)+".length", n.children[i].length, fmt.Sprintf("at least %d", want))
		}
	}
	return nil
}

// address returns where the bytes of a buffer start, or 0 when there are none,
// and pins them.
func (w *wrapper) address(buf *memory.Buffer) uintptr {
	if buf == nil || buf.Len() == 0 {
		return 0
	}
	p := unsafe.SliceData(buf.Bytes())
	w.mem.pin(p)
	return uintptr(unsafe.Pointer(p))
}

func bufferLen(buf *memory.Buffer) int64 {
	if buf == nil {
		return 0
	}
	return int64(buf.Len())
}
