package cstruct

import (
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Wrapped has the columns of an arrow-go record batch as array data. An export fills C structs from it, without nodes.
//
// Accept checks the data. Afterwards it is trusted, since arrow-go's arrays are immutable; data that a
// program changes all the same is exported with wrong contents, within the memory of the export.
type Wrapped struct {
	Plan *layout.Plan
	Mem  *tree.Owner
	Data []*array.Data // of the columns
}

// Accept sets Data, and reports whether the columns are array data of arrow-go's own, of the plan's types, that
// WrapRecordBatch accepts, with so many rows. It pins their memory. If it returns
// false, DataParser finds an error, or what is unusual.
func (w *Wrapped) Accept(columns []arrow.Array, rows int64, pins *bridge.Pins) bool {
	if !fits(w.Plan, columns) {
		return false
	}
	w.Data = make([]*array.Data, len(columns))
	p := acceptor{plan: w.Plan, pins: pins}
	for i, col := range columns {
		if w.Data[i] = p.column(i, col, rows); w.Data[i] == nil {
			return false
		}
	}
	return true
}

// fits reports whether a plan can be that of the columns, and is one of a Wrapped.
func fits(plan *layout.Plan, columns []arrow.Array) bool {
	return plan.Simple && len(columns) == len(plan.Flat)
}

// MakeNodes makes the nodes of the columns, which Accept has checked. It panics for data that was changed since, which
// arrow-go does not allow. With it, Wrapped is a tree.Source.
func (w *Wrapped) MakeNodes() []tree.Node {
	p := DataParser{accepted: true}
	for _, data := range w.Data {
		must(p.Measure(data))
	}
	p.Start(w.Mem)
	nodes := p.Take(len(w.Data))
	for i, data := range w.Data {
		must(p.Node(&nodes[i], data))
	}
	return nodes
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// dataOf returns array data of arrow-go's own, or nil.
func dataOf(data arrow.ArrayData) *array.Data {
	d, _ := data.(*array.Data)
	return d
}

// acceptor checks data against a plan.
type acceptor struct {
	plan *layout.Plan
	pins *bridge.Pins
	// The memory of the object that was pinned last, as far as it is known: buffers are often slices
	// of one object, which need only one pin.
	low, high uintptr
}

// column returns the data of column i, if it is accepted, or nil.
func (p *acceptor) column(i int, col arrow.Array, rows int64) *array.Data {
	a := &p.plan.Arrays[i]
	data := dataOf(col.Data())
	if data == nil || int64(data.Len()) != rows || !layout.Identical(col.DataType(), a.Type) || !p.accepts(a, data) {
		return nil
	}
	return data
}

// maxElements keeps sums and products of counts within int64. More elements are looked at closer.
const maxElements = 1 << 32

func (p *acceptor) accepts(a *layout.Array, d *array.Data) bool {
	length, offset, nulls := int64(d.Len()), int64(d.Offset()), int64(d.NullN())
	end := offset + length
	if uint64(length) >= maxElements || uint64(offset) >= maxElements || end >= maxElements ||
		nulls > length || !layout.Identical(d.DataType(), a.Type) {
		return false
	}
	if nulls < 0 {
		// arrow-go's first count of the nulls would write where an export reads, and exports before
		// and after it would differ.
		return false
	}
	buffers := d.Buffers()
	if len(buffers) != a.Layout.Buffers {
		return false
	}
	if b := buffers[0]; b != nil && b.Len() > 0 {
		if length > 0 && int64(b.Len()) < layout.BitBytes(end) {
			return false
		}
		if nulls > 0 {
			p.pin(b) // without nulls it is not exported, and its memory need not be pinned
		}
	}
	for i, b := range buffers[1:] {
		size := int64(0)
		if b != nil && b.Len() > 0 {
			size = int64(b.Len())
			p.pin(b)
		}
		if i == 0 && length > 0 && !a.SecondFits(size, end) {
			return false
		}
	}
	return a.Children == 0 && len(d.Children()) == 0 || p.acceptsChildren(a, d, end)
}

func (p *acceptor) acceptsChildren(a *layout.Array, d *array.Data, end int64) bool {
	below := p.plan.Below(a)
	if a.Layout.Kind == layout.Dictionary {
		dictionary := dataOf(d.Dictionary())
		return dictionary != nil && p.accepts(&below[0], dictionary) && checkDictionary("", dictionary) == nil
	}
	children := d.Children()
	if len(children) != len(below) || uint64(a.ChildElements) >= maxElements/2 {
		return false
	}
	least := end * a.ChildElements
	for i := range below {
		child := dataOf(children[i])
		if child == nil || int64(child.Len()) < least || !p.accepts(&below[i], child) {
			return false
		}
	}
	return true
}

// pin pins the bytes of a buffer, unless they are in the object that was pinned last: memory up to
// the capacity of a slice is of one object.
func (p *acceptor) pin(b *memory.Buffer) {
	start := unsafe.SliceData(b.Buf())
	at := uintptr(unsafe.Pointer(start))
	if p.low <= at && at < p.high {
		return
	}
	p.pins.Pin(start)
	p.low, p.high = at, at+uintptr(cap(b.Buf()))
}

// exportWrapped makes the C structs of a record batch of the columns, and fills *out.
func (t *Tree) exportWrapped(kind string, out *abi.ArrowArray) error {
	w := t.Wrapped
	block := bridge.NewExport(blockSize(w.Plan))
	if block == nil {
		return ErrNoMemory
	}
	// In place: a copy of what was written a moment before stalls the processor.
	var f dataFiller
	f.start(w.Plan, block)
	pointers := f.children(0, len(w.Data))
	for i, data := range w.Data {
		f.fill(i, data)
	}
	f.root(t.Root.Length, pointers, out)
	t.begin(block, kind, f.count())
	return nil
}

// sizes returns the sizes of the structs of the plan's arrays, and of the arrays of pointers to children.
func sizes(plan *layout.Plan) (structs, pointers uintptr) {
	return uintptr(len(plan.Arrays)) * sizeofArray, uintptr(plan.Pointers) * sizeofPointer
}

// blockSize returns the size of the block of an export.
func blockSize(plan *layout.Plan) uintptr {
	structs, pointers := sizes(plan)
	return bridge.BlockSize + structs + pointers + uintptr(plan.Buffers)*sizeofPointer
}

// dataFiller fills C structs from array data. The block has, after its head, the structs of the plan's arrays, in its
// order, the arrays of pointers to children, and the arrays of buffers; pointers and buffers are the next free ones,
// structs is the first.
type dataFiller struct {
	plan                              *layout.Plan
	block, structs, pointers, buffers uintptr
}

// start makes f, which is zero, fill a block.
func (f *dataFiller) start(plan *layout.Plan, block *bridge.Block) {
	structs, pointers := sizes(plan)
	f.plan, f.block = plan, uintptr(unsafe.Pointer(block))
	f.structs = f.block + bridge.BlockSize
	f.pointers = f.structs + structs
	f.buffers = f.pointers + pointers
	block.NoBuffer[0] = 0
}

// count returns the number of structs, with the root.
func (f *dataFiller) count() int { return len(f.plan.Arrays) + 1 }

// root fills the struct of the record batch, whose pointers to children children has filled.
func (f *dataFiller) root(rows int64, pointers uintptr, out *abi.ArrowArray) {
	out.Length, out.NullCount, out.Offset = rows, 0, 0
	out.NBuffers, out.Buffers = 1, f.block+unsafe.Offsetof(bridge.Block{}.NoBuffer)
	out.NChildren, out.Children, out.Dictionary = int64(len(f.plan.Flat)), pointers, 0
	out.Release, out.PrivateData = bridge.ReleaseArray, f.block
}

// children fills the next array of pointers with the structs of count arrays of the plan, and returns
// its address, or 0 if there are none.
func (f *dataFiller) children(first, count int) uintptr {
	if count == 0 {
		return 0
	}
	at := f.pointers
	f.pointers += uintptr(count) * sizeofPointer
	child := f.structs + uintptr(first)*sizeofArray
	pointers := abi.Slice[uintptr](at, count)
	for i := range pointers {
		pointers[i] = child
		child += sizeofArray
	}
	return at
}

// fill fills the struct of array i of the plan.
func (f *dataFiller) fill(i int, d *array.Data) {
	if d == nil {
		d = noData
	}
	a := &f.plan.Arrays[i]
	out := abi.At[abi.ArrowArray](f.structs + uintptr(i)*sizeofArray)
	nulls := int64(d.NullN()) // once: the null count and the bitmap belong together
	out.Length, out.Offset, out.NullCount = int64(d.Len()), int64(d.Offset()), nulls
	if out.Length == 0 {
		out.Offset = 0 // see tree.Node.DropEmptyOffset
	}
	buffers := abi.Slice[uintptr](f.buffers, a.Layout.Buffers)
	out.NBuffers, out.Buffers = int64(len(buffers)), f.buffers
	f.buffers += uintptr(len(buffers)) * sizeofPointer
	fillBuffers(buffers, d.Buffers(), nulls)
	if buffers[0] == 0 {
		out.NullCount = 0
	}
	out.NChildren, out.Children, out.Dictionary = 0, 0, 0
	out.Release, out.PrivateData = bridge.ReleaseArray, f.block
	if a.Children > 0 {
		f.fillChildren(a, out, d)
	}
}

// fillBuffers sets the addresses of the buffers. Without nulls, the bitmap is NULL.
func fillBuffers(buffers []uintptr, given []*memory.Buffer, nulls int64) {
	for k := range buffers {
		addr := uintptr(0)
		switch {
		case k > 0:
			addr = bridge.Zeros // see tree.Owner.ReplaceNulls
		case nulls == 0:
			buffers[0] = 0
			continue
		}
		if k < len(given) && given[k] != nil && given[k].Len() > 0 {
			addr = uintptr(unsafe.Pointer(unsafe.SliceData(given[k].Buf())))
		}
		buffers[k] = addr
	}
}

func (f *dataFiller) fillChildren(a *layout.Array, out *abi.ArrowArray, d *array.Data) {
	first, count := int(a.First), int(a.Children)
	if a.Layout.Kind == layout.Dictionary {
		out.Dictionary = f.structs + uintptr(first)*sizeofArray
		f.fill(first, dataOf(d.Dictionary()))
		return
	}
	out.NChildren, out.Children = int64(count), f.children(first, count)
	children := d.Children()
	for i := range count {
		var child *array.Data
		if i < len(children) {
			child = dataOf(children[i])
		}
		f.fill(first+i, child)
	}
}

// noData takes the place of data that was removed since Accept.
var noData = new(array.Data)
