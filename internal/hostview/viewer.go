package hostview

import (
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Array returns an array over the memory of a node. It takes the reference to the owner, even if it returns an error.
func Array(n *tree.Node, owner *tree.Owner) (arrow.Array, error) {
	mem := new(hostMemory)
	mem.start(owner)
	defer mem.end()
	v := viewers.Get().(*viewer)
	defer v.end()
	v.mem = mem
	return v.array(n)
}

// viewer builds arrow-go's data over the memory of a tree of nodes. It is for one goroutine at a time.
type viewer struct {
	mem   *hostMemory
	sizes []int64
	flat  tree.Node // scratch
	slabs
	// replaceNulls is true if the NULL buffers of nodes are not replaced; see tree.Owner.ReplaceNulls.
	replaceNulls bool
	// exact is positive inside types whose children's null counts arrow-go reads at once. It takes
	// an unknown count for a null.
	exact int
	// shared is true if other arrays use the memory, so that an array that arrow-go refuses must not end it.
	shared bool
}

// viewers has the unused viewers, with the rest of their slabs.
var viewers = sync.Pool{New: func() any { return new(viewer) }}

// end makes v ready for another use.
func (v *viewer) end() {
	v.mem, v.flat = nil, tree.Node{}
	v.replaceNulls, v.exact, v.shared = false, 0, false
	viewers.Put(v)
}

// check returns an error if the buffers of the node or of one below it cannot have the sizes that their
// contents demand.
func (v *viewer) check(n *tree.Node) (err error) {
	if v.sizes, err = hostread.CheckSizes(v.sizes, n); err != nil {
		return err
	}
	for i := range n.Children {
		if err := v.check(&n.Children[i]); err != nil {
			return fielderr.Within(n.ChildName(i), err)
		}
	}
	return nil
}

func (v *viewer) array(n *tree.Node) (arr arrow.Array, err error) {
	if n.Layout.Kind == layout.Fixed && n.Type.ID() != arrow.EXTENSION {
		return v.fixed(n, layout.LeastSize(n.Type, n.Layout, 1, n.Offset+n.Length)), nil
	}
	var data *array.Data
	defer hostread.RecoverArrow(&err, func() { v.refused(data) }) // also of an extension type, which is a program's
	if data, err = v.data(n); err != nil {
		return nil, err
	}
	return v.make(data), nil
}

// fixed is array for values of a fixed width, whose buffer has size bytes: arrow-go refuses none.
func (v *viewer) fixed(n *tree.Node, size int64) arrow.Array {
	switch n.Type.ID() {
	case arrow.INT64:
		c := v.int64s.take()
		v.setFixed(&c.space, &c.values, n, size)
		c.array.Retain() // the reference of the caller
		c.array.Reset(&c.data)
		return &c.array
	case arrow.INT32:
		c := v.int32s.take()
		v.setFixed(&c.space, &c.values, n, size)
		c.array.Retain()
		c.array.Reset(&c.data)
		return &c.array
	case arrow.FLOAT64:
		c := v.float64s.take()
		v.setFixed(&c.space, &c.values, n, size)
		c.array.Retain()
		c.array.Reset(&c.data)
		return &c.array
	}
	space := v.spaces.take()
	v.setFixed(space, v.buffers.take(), n, size)
	return array.MakeFromData(&space.data)
}

// setFixed sets the data of an array of fixed, and the buffer of its values.
func (v *viewer) setFixed(space *space, values *memory.Buffer, n *tree.Node, size int64) {
	buffers := space.buffers[:2:2]
	space.data.Reset(n.Type, int(n.Length), buffers, nil, int(n.Nulls), int(n.Offset))
	if addr := n.Buffers[0]; addr != 0 && n.Length > 0 {
		buffers[0] = v.buffer(addr, layout.BitBytes(n.Offset+n.Length))
	}
	v.mem.unused--
	setBuffer(values, abi.Slice[byte](n.Buffers[1], int(size)), v.mem)
	buffers[1] = values
}

// buffer returns a buffer of the memory.
func (v *viewer) buffer(addr uintptr, size int64) *memory.Buffer {
	to := v.buffers.take()
	v.mem.unused--
	setBuffer(to, abi.Slice[byte](addr, int(size)), v.mem)
	return to
}

// refused ends the memory of an array that arrow-go refused, whose references cannot be dropped. data is nil if it was
// not complete.
func (v *viewer) refused(data *array.Data) {
	if data != nil {
		discard(data)
	}
	if !v.shared {
		v.mem.abandon()
	}
}

// discard drops data without a reference, unless arrow-go has taken one.
func discard(data *array.Data) {
	data.Retain()
	data.Release()
}

// data returns data without a reference: the first Retain is that of the array, or of the parent, that keeps it. Atomic
// operations are most of what a column costs beside the allocations.
func (v *viewer) data(n *tree.Node) (data *array.Data, err error) {
	st := n.Storage()
	if v.sizes, err = hostread.Sizes(v.sizes[:0], n, st); err != nil {
		return nil, err
	}
	// arrow-go keeps an entry for a bitmap even if the type has none.
	shift := 1
	if n.Layout.Validity {
		shift = 0
	}
	nulls := n.Nulls
	if v.exact > 0 {
		nulls = hostread.Nulls(n)
	}
	data, buffers := v.space(shift + len(v.sizes))
	var children []arrow.ArrayData
	if len(n.Children) > 0 && n.Layout.Kind != layout.Dictionary {
		children = make([]arrow.ArrayData, len(n.Children))
	}
	// What the slices get from here on is the data's, without another reference to each.
	data.Reset(n.Type, int(n.Length), buffers, children, int(nulls), int(n.Offset))
	for i, size := range v.sizes {
		addr := n.Buffers[i]
		if addr == 0 {
			if v.replaceNulls && i >= n.Layout.FirstData() {
				addr = bridge.Zeros
			}
		} else if n.Length == 0 {
			addr = bridge.Zeros // a producer need not provide the single offset of an empty array
		}
		if addr != 0 {
			buffers[shift+i] = v.buffer(addr, size)
		}
	}
	if len(n.Children) > 0 {
		if err := v.children(n, data, children); err != nil {
			discard(data)
			return nil, err
		}
	}
	return data, nil
}

// children gives data the data of the children; on an error, of those before it.
func (v *viewer) children(n *tree.Node, data *array.Data, children []arrow.ArrayData) error {
	if n.Layout.Kind == layout.RunEnds || n.Storage().ID() == arrow.MAP {
		v.exact++
		defer func() { v.exact-- }()
	}
	for i := range n.Children {
		child, err := v.data(&n.Children[i])
		switch {
		case err != nil:
			return fielderr.Within(n.ChildName(i), err)
		case children == nil:
			data.SetDictionary(child)
		default:
			child.Retain()
			children[i] = child
		}
	}
	return nil
}
