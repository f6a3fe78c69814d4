package cstruct

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Tree is what an export fills C structs with: an array, or columns of a record batch, as nodes or,
// if Wrapped is not nil, as array data.
type Tree struct {
	Mem     *tree.Owner // a reference, which the structs take; nil afterwards
	Root    tree.Node   // of a record batch, without a type; of one of Wrapped, the length only
	Wrapped *Wrapped
}

// Drop drops the reference, unless structs have taken it.
func (t *Tree) Drop() {
	if t.Mem != nil {
		t.Mem.Release()
	}
}

// begin gives the reference to the structs in a block.
func (t *Tree) begin(block *bridge.Block, kind string, structs int) {
	block.Begin(kind, structs, t.Mem)
	t.Mem = nil
}

func (t *Tree) fill(kind string, out *abi.ArrowArray) error {
	if t.Wrapped != nil {
		return t.exportWrapped(kind, out)
	}
	return t.exportNodes(kind, out)
}

// Export fills *out with a tree, whose reference the structs take, and *outSchema, unless it is nil, with its schema.
// On an error, it writes neither, and takes nothing. kind is for lists of live objects.
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

// exportNodes makes the C structs of the nodes and fills *out. Without memory, it returns an error and
// writes nothing. kind is for lists of live objects.
//
// The block has, after its head, the ArrowArray structs below the root, then the arrays of pointers
// to children.
func (t *Tree) exportNodes(kind string, out *abi.ArrowArray) error {
	root := &t.Root
	var size tree.Size
	size.AddChildren(root)
	block := bridge.NewExport(bridge.BlockSize + uintptr(size.Structs)*sizeofArray + uintptr(size.Pointers)*sizeofPointer)
	if block == nil {
		return ErrNoMemory
	}
	start := uintptr(unsafe.Pointer(block))
	f := filler{
		block:    start,
		structs:  start + bridge.BlockSize,
		pointers: start + bridge.BlockSize + uintptr(size.Structs)*sizeofArray,
	}
	f.fill(root, out)
	if root.Type == nil { // a record batch has no bitmap, even if its columns have
		block.NoBuffer[0] = 0
		out.NBuffers = 1
		out.Buffers = uintptr(unsafe.Pointer(&block.NoBuffer))
	}
	t.begin(block, kind, size.Structs+1)
	return nil
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
