package cstruct

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// DataParser makes nodes of arrow-go's array data, which it checks, in two passes: Measure counts, so that all nodes, all
// buffer addresses and all sizes of views are one allocation each. Wrapped.Accept makes the same checks of usual data.
type DataParser struct {
	// CheckBuffer, if it is not nil, checks the address of buffer i of an array.
	CheckBuffer func(i int, addr uintptr) error

	mem      *tree.Owner
	accepted bool // Wrapped.Accept has pinned the buffers, and has checked the dictionaries

	nNodes, nBuffers, nSizes int

	nodes   []tree.Node
	buffers []uintptr
	sizes   []int64
}

// Measure counts the nodes, addresses and sizes that the data needs. It checks what can be checked without the sizes of
// buffers.
func (p *DataParser) Measure(data arrow.ArrayData) error { return p.measure(data, 0) }

func (p *DataParser) measure(data arrow.ArrayData, depth int) error {
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
	p.nNodes++
	p.nBuffers += have
	if l.Kind == layout.View {
		p.nSizes += have - l.Buffers
	}
	if l.Kind == layout.Dictionary {
		if isNilData(data.Dictionary()) {
			return fielderr.Invalid(fielderr.OpWrap, "dictionary", "nil", fmt.Sprintf("array data for %s", fielderr.Describe(dt)))
		}
		return fielderr.Within("dictionary", p.measure(data.Dictionary(), depth+1))
	}
	if want := l.ChildCount(dt); len(data.Children()) != want {
		return fielderr.Invalid(fielderr.OpWrap, "children", len(data.Children()), fmt.Sprintf("%d for %s", want, fielderr.Describe(dt)))
	}
	for i, child := range data.Children() {
		if err := p.measure(child, depth+1); err != nil {
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

// Start makes the memory for what was measured, after which Take and Node can be called. mem pins it.
func (p *DataParser) Start(mem *tree.Owner) {
	p.mem = mem
	p.nodes = make([]tree.Node, p.nNodes)
	if p.nBuffers > 0 {
		p.buffers = make([]uintptr, p.nBuffers)
		mem.PinMore(&p.buffers[0])
	}
	if p.nSizes > 0 {
		p.sizes = make([]int64, p.nSizes)
		mem.PinMore(&p.sizes[0])
	}
}

// Take returns the next n of the nodes that were measured, for Node to fill.
func (p *DataParser) Take(n int) []tree.Node { return tree.Take(&p.nodes, n) }

// Node checks the data of one array, and fills n and the nodes below it.
func (p *DataParser) Node(n *tree.Node, data arrow.ArrayData) error {
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
	n.Buffers = tree.Take(&p.buffers, count)
	nulls := int64(data.NullN()) // once: the null count and the bitmap belong together
	for i, buf := range buffers {
		need := layout.LeastSize(dt, l, i, offset+length)
		if l.Validity && i == 0 && nulls == 0 && (length == 0 || bufferLen(buf) >= need) {
			continue // without nulls the bitmap is NULL, as in Wrapped
		}
		addr := p.address(buf)
		if p.CheckBuffer != nil {
			if err := p.CheckBuffer(i, addr); err != nil {
				return err
			}
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
		sizes := tree.Take(&p.sizes, len(buffers)-2)
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
	return p.children(n, dt, data)
}

func (p *DataParser) children(n *tree.Node, dt arrow.DataType, data arrow.ArrayData) error {
	if n.Layout.Kind == layout.Dictionary {
		n.Children = p.Take(1)
		err := p.Node(&n.Children[0], data.Dictionary())
		if err == nil && !p.accepted {
			err = checkDictionary(fielderr.OpWrap, data.Dictionary())
		}
		return fielderr.Within("dictionary", err)
	}
	children := data.Children()
	if len(children) == 0 {
		return nil
	}
	n.Children = p.Take(len(children))
	least, ok := layout.ChildLength(dt, n.Offset+n.Length)
	if !ok {
		return fielderr.Invalid(fielderr.OpWrap, "length", n.Length, fmt.Sprintf("fewer elements than int64 can count the values of, for %s", fielderr.Describe(dt)))
	}
	for i, child := range children {
		if err := p.Node(&n.Children[i], child); err != nil {
			return fielderr.Within(fielderr.Child(i), err)
		}
		if n.Children[i].Length < least {
			return fielderr.Invalid(fielderr.OpWrap, fielderr.Child(i)+".length", n.Children[i].Length, fmt.Sprintf("at least %d", least))
		}
	}
	if n.Layout.Kind == layout.RunEnds {
		return checkRuns(fielderr.OpWrap, n)
	}
	return nil
}

// address pins the bytes of a buffer for C and returns their address, or 0 if there are none.
func (p *DataParser) address(buf *memory.Buffer) uintptr {
	if buf == nil || buf.Len() == 0 {
		return 0
	}
	start := unsafe.SliceData(buf.Bytes())
	if !p.accepted {
		p.mem.Pin(start)
	}
	return uintptr(unsafe.Pointer(start))
}

func bufferLen(buf *memory.Buffer) int64 {
	if buf == nil {
		return 0
	}
	return int64(buf.Len())
}
