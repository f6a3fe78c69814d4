package cdevice

import (
	"fmt"
	"math"
	"reflect"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/ordinary"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// WrapRecordBatch makes a batch of an arrow-go record batch without copying. dev is the device whose
// memory the columns were built in: [device.CPUDevice] for every ordinary batch, a device of memory
// that the CPU can access (pinned, managed) for columns that were built with that device's allocator.
//
// The batch holds a reference to rec until its last Release; rec stays the caller's. Memory of the Go
// heap is pinned for C (runtime.Pinner) once, here, for all exports. If the batch was exported, the
// reference is dropped only after the work that is pending on dev at the last release: a consumer may
// release memory that its stream still reads.
//
// WrapRecordBatch reads only buffer addresses and lengths, and null counts that rec already knows: an
// array whose count is 0 is wrapped without its bitmap. It may be called while the memory is being
// filled.
//
// An error wraps arrow.ErrInvalid or arrow.ErrNotImplemented if a column does not match the schema, or
// is not laid out as its type demands.
func WrapRecordBatch(rec arrow.RecordBatch, dev device.Device) (b *RecordBatch, err error) {
	if argument.IsNil(rec) {
		return nil, fielderr.Absent(fielderr.OpWrap, "RecordBatch", "a record batch of arrow-go")
	}
	if argument.IsNil(dev) {
		return nil, fielderr.Absent(fielderr.OpWrap, "device", "the device that the memory lives on")
	}
	var w wrapper
	defer func() { w.finish(recover(), &err) }()
	at, err := locationOn(dev)
	if err != nil {
		return nil, err
	}
	schema, columns, rows := rec.Schema(), rec.Columns(), rec.NumRows()
	if b := wrapColumns(rec, schema, columns, rows, at); b != nil {
		return b, nil
	}
	if err := checkSchema(schema, columns); err != nil {
		return nil, err
	}
	for i, col := range columns {
		if err := w.measure(col.Data(), 0); err != nil {
			return nil, fielderr.Within(tree.ColumnName(i), err)
		}
		if want, got := schema.Field(i).Type, col.Data().DataType(); !sameType(want, got) {
			return nil, fielderr.Within(tree.ColumnName(i), fielderr.Invalid(fielderr.OpWrap, "data.type", got, want))
		}
	}
	rec.Retain()
	w.start(tree.Own(rec), at)
	nodes := w.takeNodes(len(columns))
	for i, col := range columns {
		if err := w.fill(&nodes[i], col.Data()); err != nil {
			return nil, fielderr.Within(tree.ColumnName(i), err)
		}
		if nodes[i].Length < rows {
			return nil, fielderr.Within(tree.ColumnName(i), fielderr.Invalid(fielderr.OpWrap, "length", nodes[i].Length, fmt.Sprintf("at least %d", rows)))
		}
		if nodes[i].Length > rows {
			nodes[i] = nodes[i].Slice(0, rows)
		}
	}
	b = newRecordBatch(w.mem, at, schema, rows, nodes)
	b.host = rec
	return b, nil
}

// WrapArray is [WrapRecordBatch] for one array.
func WrapArray(arr arrow.Array, dev device.Device) (a *Array, err error) {
	if argument.IsNil(arr) {
		return nil, fielderr.Absent(fielderr.OpWrap, "Array", "an array of arrow-go")
	}
	if argument.IsNil(dev) {
		return nil, fielderr.Absent(fielderr.OpWrap, "device", "the device that the memory lives on")
	}
	var w wrapper
	defer func() { w.finish(recover(), &err) }()
	at, err := locationOn(dev)
	if err != nil {
		return nil, err
	}
	data, dt := arr.Data(), arr.DataType()
	if err := w.measure(data, 0); err != nil {
		return nil, fielderr.Within("array", err)
	}
	arr.Retain()
	w.start(tree.Own(arr), at)
	root := w.takeNodes(1)
	if err := w.fill(&root[0], data); err != nil {
		return nil, fielderr.Within("array", err)
	}
	a = newArray(w.mem, at, arrow.Field{Type: dt, Nullable: true}, root[0])
	a.host = arr
	return a, nil
}

// locationOn returns the location of memory that was built on dev, if arrow-go can read memory of dev.
func locationOn(dev device.Device) (tree.Location, error) {
	at := tree.Location{ID: dev.ID(), Dev: dev}
	if !dev.CPUAccessible() {
		err := fmt.Errorf("%s: %w", at.NotAccessible(), device.ErrNotSupported)
		return at, fielderr.New(fielderr.OpWrap, "device", at.ID, "memory that the CPU can access, as arrow-go's arrays are", err)
	}
	return at, nil
}

// checkSchema checks what arrow-go's own record batches guarantee, and other implementations may not.
func checkSchema(schema *arrow.Schema, columns []arrow.Array) error {
	if schema == nil {
		return fielderr.Invalid(fielderr.OpWrap, "schema", "nil", "a schema")
	}
	if !schema.IsNativeEndian() {
		return fielderr.New(fielderr.OpWrap, "schema.endianness", schema.Endianness(), "the byte order of this machine", arrow.ErrNotImplemented)
	}
	if schema.NumFields() != len(columns) {
		return fielderr.Invalid(fielderr.OpWrap, "schema.fields", schema.NumFields(), fmt.Sprintf("%d, as there are columns", len(columns)))
	}
	for i, col := range columns {
		if want, got := schema.Field(i).Type, col.DataType(); !sameType(want, got) {
			return fielderr.Within(tree.ColumnName(i), fielderr.Invalid(fielderr.OpWrap, "type", got, want))
		}
	}
	return nil
}

// sameType compares types; first by address, which is what most batches need.
func sameType(a, b arrow.DataType) bool {
	if a == nil || b == nil {
		return false
	}
	return sameObject(a, b) || arrow.TypeEqual(a, b)
}

// sameObject reports whether two types are the same pointer.
func sameObject(a, b arrow.DataType) bool {
	return reflect.TypeOf(a).Kind() == reflect.Pointer && a == b
}

// wrapper turns ArrayData into nodes, in two passes: measure counts, so that
// all nodes, all buffer addresses and all view sizes are one allocation each.
type wrapper struct {
	mem    *tree.Owner
	locked bool // all memory must be pinned or managed
	pinned bool // the buffers are pinned already

	nNodes, nBuffers, nSizes int

	nodes   []tree.Node
	buffers []uintptr
	sizes   []int64
}

// finish releases the memory if wrapping failed. Record batches, arrays and types may be
// implemented by other packages, so a panic in them becomes an error.
func (w *wrapper) finish(panicked any, err *error) {
	if panicked != nil {
		*err = fielderr.New(fielderr.OpWrap, "arguments", nil, nil, fmt.Errorf("%w: panic: %v", arrow.ErrInvalid, panicked))
	}
	if *err != nil && w.mem != nil {
		w.mem.Release()
	}
}

func (w *wrapper) measure(data arrow.ArrayData, depth int) error {
	if isNilData(data) {
		return fielderr.Invalid(fielderr.OpWrap, "data", "nil", "array data")
	}
	dt, l := layout.Of(data.DataType())
	if l.Kind == layout.Unknown {
		return fielderr.New(fielderr.OpWrap, "type", nil, nil, layout.UnknownType(data.DataType()))
	}
	if depth > layout.MaxDepth {
		return fielderr.New(fielderr.OpWrap, "type", nil, nil, layout.ErrTooDeep)
	}
	have := len(data.Buffers())
	if !l.Validity && have > 0 {
		have-- // arrow-go keeps an empty entry for a bitmap that the type does not have
	}
	if l.Kind == layout.View {
		have++ // the sizes
	}
	if have < l.Buffers || have > l.Buffers && l.Kind != layout.View && l.Kind != layout.Null && l.Kind != layout.RunEnds {
		return fielderr.Invalid(fielderr.OpWrap, "buffers", have, fmt.Sprintf("%d for %s", l.Buffers, fielderr.Describe(dt)))
	}
	if l.Kind == layout.Null || l.Kind == layout.RunEnds {
		have = 0
	}
	w.nNodes++
	w.nBuffers += have
	if l.Kind == layout.View {
		w.nSizes += have - l.Buffers
	}
	if l.Kind == layout.Dictionary {
		if isNilData(data.Dictionary()) {
			return fielderr.Invalid(fielderr.OpWrap, "dictionary", "nil", fmt.Sprintf("array data for %s", fielderr.Describe(dt)))
		}
		return fielderr.Within("dictionary", w.measure(data.Dictionary(), depth+1))
	}
	if want := l.ChildCount(dt); len(data.Children()) != want {
		return fielderr.Invalid(fielderr.OpWrap, "children", len(data.Children()), fmt.Sprintf("%d for %s", want, fielderr.Describe(dt)))
	}
	for i, child := range data.Children() {
		if err := w.measure(child, depth+1); err != nil {
			return fielderr.Within(fielderr.Child(i), err)
		}
	}
	return nil
}

// isNilData reports whether data is nil, or a nil *array.Data that arrow-go put into a non-nil
// interface.
func isNilData(data arrow.ArrayData) bool {
	if data == nil {
		return true
	}
	d, ok := data.(*array.Data)
	return ok && d == nil
}

func (w *wrapper) start(mem *tree.Owner, at tree.Location) {
	w.mem = mem
	if at.ID.Type != device.CPU { // which has no pending work
		mem.Home = at.Dev
		w.locked = true
	}
	w.nodes = make([]tree.Node, w.nNodes)
	if w.nBuffers > 0 {
		w.buffers = make([]uintptr, w.nBuffers)
		mem.PinMore(&w.buffers[0])
	}
	if w.nSizes > 0 {
		w.sizes = make([]int64, w.nSizes)
		mem.PinMore(&w.sizes[0])
	}
}

func (w *wrapper) takeNodes(n int) []tree.Node { return tree.Take(&w.nodes, n) }

func (w *wrapper) fill(n *tree.Node, data arrow.ArrayData) error {
	dt, l := layout.Of(data.DataType())
	length, offset := int64(data.Len()), int64(data.Offset())
	if length < 0 || offset < 0 || offset > math.MaxInt64-length {
		return fielderr.Invalid(fielderr.OpWrap, "offset", fmt.Sprintf("%d with length %d", offset, length), "a range")
	}
	n.Type, n.Layout, n.Length, n.Offset = data.DataType(), l, length, offset
	n.DropEmptyOffset()

	buffers := data.Buffers()
	switch {
	case l.Kind == layout.Null || l.Kind == layout.RunEnds:
		buffers = nil
	case !l.Validity:
		buffers = buffers[1:]
	}
	count := len(buffers)
	if l.Kind == layout.View {
		count++
	}
	n.Buffers = tree.Take(&w.buffers, count)
	nulls := int64(data.NullN()) // once: the null count and the bitmap belong together
	for i, buf := range buffers {
		need := layout.LeastSize(dt, l, i, offset+length)
		if l.Validity && i == 0 && nulls == 0 && (length == 0 || bufferLen(buf) >= need) {
			continue // without nulls the bitmap is NULL, as in cstruct.Wrapped
		}
		addr := w.address(buf)
		if w.locked && ordinary.Any() && ordinary.Contains(addr) {
			return fielderr.New(fielderr.OpWrap, fmt.Sprintf("buffers[%d]", i), fielderr.Hex(addr), "page-locked memory, which the allocator had no more of: wrap with device.CPUDevice()", errNotLocked)
		}
		if addr == 0 && !(l.Validity && i == 0) {
			addr = bridge.Zeros // see tree.Owner.ReplaceNulls
		}
		n.Buffers[i] = addr
		if length > 0 && addr != 0 && bufferLen(buf) < need {
			return fielderr.Invalid(fielderr.OpWrap, fmt.Sprintf("buffers[%d].length", i), bufferLen(buf), fmt.Sprintf("at least %d", need))
		}
	}
	if l.Kind == layout.View {
		sizes := tree.Take(&w.sizes, len(buffers)-2)
		for i, buf := range buffers[2:] {
			sizes[i] = bufferLen(buf)
		}
		n.Buffers[count-1] = bridge.Zeros
		if len(sizes) > 0 {
			n.Buffers[count-1] = uintptr(unsafe.Pointer(&sizes[0]))
		}
	}
	n.Nulls = tree.KnownNulls(l, length, nulls, n.Validity())
	if n.Nulls < tree.UnknownNulls || n.Nulls > length {
		return fielderr.Invalid(fielderr.OpWrap, "null_count", n.Nulls, fmt.Sprintf("-1 to %d", length))
	}
	return w.fillChildren(n, dt, data)
}

func (w *wrapper) fillChildren(n *tree.Node, dt arrow.DataType, data arrow.ArrayData) error {
	if n.Layout.Kind == layout.Dictionary {
		n.Children = w.takeNodes(1)
		err := w.fill(&n.Children[0], data.Dictionary())
		if err == nil && !w.pinned { // else Accept has checked it
			err = cstruct.CheckDictionary(fielderr.OpWrap, data.Dictionary())
		}
		return fielderr.Within("dictionary", err)
	}
	children := data.Children()
	if len(children) == 0 {
		return nil
	}
	n.Children = w.takeNodes(len(children))
	least, ok := layout.ChildLength(dt, n.Offset+n.Length)
	if !ok {
		return fielderr.Invalid(fielderr.OpWrap, "length", n.Length, fmt.Sprintf("fewer elements than int64 can count the values of, for %s", fielderr.Describe(dt)))
	}
	for i, child := range children {
		if err := w.fill(&n.Children[i], child); err != nil {
			return fielderr.Within(fielderr.Child(i), err)
		}
		if n.Children[i].Length < least {
			return fielderr.Invalid(fielderr.OpWrap, fielderr.Child(i)+".length", n.Children[i].Length, fmt.Sprintf("at least %d", least))
		}
	}
	if n.Layout.Kind == layout.RunEnds {
		return cstruct.CheckRuns(fielderr.OpWrap, n)
	}
	return nil
}

// address pins the bytes of a buffer for C and returns their address, or 0 if there are none.
func (w *wrapper) address(buf *memory.Buffer) uintptr {
	if buf == nil || buf.Len() == 0 {
		return 0
	}
	p := unsafe.SliceData(buf.Bytes())
	if !w.pinned {
		w.mem.Pin(p)
	}
	return uintptr(unsafe.Pointer(p))
}

func bufferLen(buf *memory.Buffer) int64 {
	if buf == nil {
		return 0
	}
	return int64(buf.Len())
}
