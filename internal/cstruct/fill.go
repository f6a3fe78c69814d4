package cstruct

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/handle"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/live"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Tree is what an export fills C structs with: an array, or columns of a record batch, as nodes or,
// if Wrapped is not nil, as array data.
type Tree struct {
	Mem     tree.Held
	Root    tree.Node // of a record batch, without a type; of one of Wrapped, the length only
	Wrapped *Wrapped
}

func (t *Tree) fill(kind string, out *abi.ArrowArray) error {
	if t.Wrapped != nil {
		return t.Wrapped.export(kind, t.Root.Length, t.Mem, out)
	}
	return exportTree(kind, &t.Root, t.Mem, out)
}

// Export fills *out with a tree and *outSchema, unless it is nil, with its schema.
// On an error, it writes neither. kind is for lists of live objects.
func Export(kind string, t *Tree, out *abi.ArrowArray, outSchema *abi.ArrowSchema,
	exportSchema func(*abi.ArrowSchema) error,
) error {
	if outSchema == nil {
		return t.fill(kind, out)
	}
	var s abi.ArrowSchema // on the heap, and so only if there is a schema
	if err := exportSchema(&s); err != nil {
		return err
	}
	if err := t.fill(kind, out); err != nil {
		bridge.CallSchemaRelease(&s)
		return err
	}
	*outSchema = s
	return nil
}

// The kinds of exported trees in lists of live objects.
const (
	DeviceKind = "exported ArrowDeviceArray"
	PlainKind  = "exported ArrowArray"
)

// ErrNoMemory is the error of an export whose C structs cannot be allocated.
var ErrNoMemory = fmt.Errorf("cdevice: export: no memory for the C structs: %w", syscall.ENOMEM)

const (
	sizeofArray   = unsafe.Sizeof(abi.ArrowArray{})
	sizeofPointer = unsafe.Sizeof(uintptr(0))
)

// exportTree makes the C structs of a tree and fills *out. Without memory, it returns an error and
// writes nothing. kind is for lists of live objects.
//
// The block has, after its head, the ArrowArray structs below the root, then the arrays of pointers
// to children.
func exportTree(kind string, root *tree.Node, mem tree.Held, out *abi.ArrowArray) error {
	var size tree.Size
	size.AddChildren(root)
	block := newBlock(kind, mem, bridge.BlockSize+uintptr(size.Structs)*sizeofArray+uintptr(size.Pointers)*sizeofPointer)
	if block == nil {
		return ErrNoMemory
	}
	block.Live = int64(size.Structs) + 1
	block.Filled(nil)

	start := uintptr(unsafe.Pointer(block))
	f := filler{
		block:    start,
		structs:  start + bridge.BlockSize,
		pointers: start + bridge.BlockSize + uintptr(size.Structs)*sizeofArray,
	}
	f.fill(root, out)
	if root.Type == nil { // a record batch has no bitmap, even if its columns have
		block.NoBuffer = 0
		out.NBuffers = 1
		out.Buffers = uintptr(unsafe.Pointer(&block.NoBuffer))
	}
	return nil
}

// newBlock returns a block whose structs keep mem alive. While tracing is on, they are also listed
// until their release, for which the block has a handle of its own.
func newBlock(kind string, mem tree.Held, size uintptr) *bridge.Block {
	origin := live.Add(kind)
	if origin == nil {
		return mem.Export(size)
	}
	block := bridge.NewTree(size)
	if block == nil {
		origin.Remove()
		return nil
	}
	block.Own(&tracedStruct{mem.Retain(), origin})
	return block
}

// filler fills C structs from nodes; structs and pointers are the next free ones of the block.
type filler struct {
	block, structs, pointers uintptr
}

func (f *filler) fill(n *tree.Node, out *abi.ArrowArray) {
	out.Length = n.Length
	out.NullCount = n.Nulls
	out.Offset = n.Offset
	out.NBuffers = int64(len(n.Buffers))
	out.NChildren = 0
	out.Buffers = uintptr(unsafe.Pointer(unsafe.SliceData(n.Buffers)))
	out.Children = 0
	out.Dictionary = 0
	out.Release = bridge.ReleaseArray
	out.PrivateData = f.block
	if len(n.Children) != 0 {
		f.fillChildren(n, out)
	}
}

func (f *filler) fillChildren(n *tree.Node, out *abi.ArrowArray) {
	count := len(n.Children)
	first := f.structs
	f.structs += uintptr(count) * sizeofArray
	if n.Layout.Kind == layout.Dictionary {
		out.Dictionary = first
		f.fill(&n.Children[0], abi.At[abi.ArrowArray](first))
		return
	}
	out.NChildren = int64(count)
	out.Children = f.pointers
	pointers := abi.Slice[uintptr](f.pointers, count)
	f.pointers += uintptr(count) * sizeofPointer
	children := abi.Slice[abi.ArrowArray](first, count)
	for i := range children {
		pointers[i] = first + uintptr(i)*sizeofArray
		f.fill(&n.Children[i], &children[i])
	}
}

type tracedStruct struct {
	handle.Releaser
	origin *live.Object
}

func (t *tracedStruct) Release() {
	defer t.origin.Remove()
	t.Releaser.Release()
}
