//go:build cgo

package cdevice

import (
	"fmt"
	"syscall"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/schema"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// ExportRecordBatch fills *out, and *outSchema unless it is nil, with the batch:
// a struct array whose children are the columns. No data is copied, read or
// waited for; the batch's event becomes sync_event. For consumers with needs of their own,
// export what [RecordBatch.AsCPU], [RecordBatch.RecordEvent], [RecordBatch.ForCuDF] or
// [RecordBatch.CopyTo] returns, or call [RecordBatch.Synchronize] first.
//
// The exported struct holds the memory on its own until the consumer releases
// it, on any thread; children may be moved out and outlive their parent. The
// batch stays the caller's, and can be exported any number of times.
//
// It writes *out and *outSchema only on success, and does not look at what they held: a struct that was
// not released is overwritten and lost.
//
// Errors wrap [ErrReleased] for a batch that was released, arrow.ErrInvalid or
// arrow.ErrNotImplemented for a schema that C cannot express.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#record-batches
func ExportRecordBatch(batch *RecordBatch, out *CArrowDeviceArray, outSchema *cdata.CArrowSchema) error {
	if batch == nil {
		return fielderr.Absent(fielderr.OpExport, "RecordBatch", "a batch")
	}
	if err := batch.hold(fielderr.OpExport); err != nil {
		return err
	}
	defer batch.mem.Release()
	root := tree.Node{Layout: &layout.All[layout.Struct], Length: batch.rows, Children: batch.columns}
	return export(&root, batch.mem, batch.at(), out, outSchema, func(s *abi.ArrowSchema) error {
		return schema.ExportSchema(batch.schema, s)
	})
}

// ExportArray fills *out, and *outSchema unless it is nil, with one array. All
// of [ExportRecordBatch] holds; the schema is the array's field.
//
// It writes *out and *outSchema only on success, and does not look at what they held: a struct that was
// not released is overwritten and lost.
func ExportArray(array *Array, out *CArrowDeviceArray, outSchema *cdata.CArrowSchema) error {
	if array == nil {
		return fielderr.Absent(fielderr.OpExport, "Array", "an array")
	}
	if err := array.hold(fielderr.OpExport); err != nil {
		return err
	}
	defer array.mem.Release()
	return export(&array.node, array.mem, array.at(), out, outSchema, func(s *abi.ArrowSchema) error {
		return schema.Export(array.field, s)
	})
}

// ExportSchema fills *out with a schema alone, for interfaces that pass it
// separately. It writes *out only on success, and does not look at what it held: a struct that was not
// released is overwritten and lost.
func ExportSchema(s *arrow.Schema, out *cdata.CArrowSchema) error {
	if out == nil {
		return noOutput("ArrowSchema")
	}
	if s == nil {
		return fielderr.Absent(fielderr.OpExport, "schema", "a schema")
	}
	return schema.ExportSchema(s, schemaMirror(out))
}

// ExportField fills *out with the schema of one array, as [ExportSchema] does.
func ExportField(field arrow.Field, out *cdata.CArrowSchema) error {
	if out == nil {
		return noOutput("ArrowSchema")
	}
	if fielderr.IsNil(field.Type) {
		return fielderr.Absent(fielderr.OpExport, "field.Type", "a data type")
	}
	return schema.Export(field, schemaMirror(out))
}

func exportReleased(what string) error {
	return fielderr.New(fielderr.OpExport, what, nil, nil, ErrReleased)
}

func noOutput(what string) error {
	return fielderr.Invalid(fielderr.OpExport, what, "NULL", "a struct to fill")
}

// export writes nothing to the caller's structs before all that can fail is done.
func export(root *tree.Node, mem *tree.Owner, at tree.Location, out *CArrowDeviceArray, outSchema *cdata.CArrowSchema,
	exportSchema func(*abi.ArrowSchema) error,
) error {
	if out == nil {
		return noOutput("ArrowDeviceArray")
	}
	if err := exportStructs(exportedDeviceKind, root, mem, &deviceMirror(out).Array, outSchema, exportSchema); err != nil {
		return err
	}
	mem.MarkExported()
	out.DeviceID = at.ID.Ordinal
	out.DeviceType = int32(at.ID.Type)
	out.SyncEvent = at.Event
	out.Reserved = [3]int64{}
	return nil
}

// exportStructs fills *out with a tree and *outSchema, unless it is nil, with its schema.
// Before all that can fail is done, it writes neither.
func exportStructs(kind string, root *tree.Node, mem *tree.Owner, out *abi.ArrowArray, outSchema *cdata.CArrowSchema,
	exportSchema func(*abi.ArrowSchema) error,
) error {
	if outSchema == nil {
		return exportTree(kind, root, mem, out)
	}
	var s abi.ArrowSchema // on the heap, and so only where there is a schema
	if err := exportSchema(&s); err != nil {
		return err
	}
	if err := exportTree(kind, root, mem, out); err != nil {
		bridge.CallSchemaRelease(&s)
		return err
	}
	*schemaMirror(outSchema) = s
	return nil
}

// What lists of live objects call an exported tree.
const (
	exportedDeviceKind = "exported ArrowDeviceArray"
	exportedPlainKind  = "exported ArrowArray"
)

var errNoMemory = fmt.Errorf("cdevice: export: no memory for the C structs: %w", syscall.ENOMEM)

// exportBlock heads the one C allocation of an export. Behind it lie the
// ArrowArray structs below the root, then the arrays of pointers to children.
type exportBlock struct {
	bridge.Block
	// noBuffer is the buffers array of a record batch's root: one NULL bitmap.
	noBuffer uintptr
}

const (
	sizeofBlock   = unsafe.Sizeof(exportBlock{})
	sizeofArray   = unsafe.Sizeof(abi.ArrowArray{})
	sizeofPointer = unsafe.Sizeof(uintptr(0))
)

// exportTree makes the C structs of a tree and fills *out. The error, where there is no
// memory, comes with nothing written. kind is for lists of live objects.
func exportTree(kind string, root *tree.Node, mem *tree.Owner, out *abi.ArrowArray) error {
	var size tree.TreeSize
	size.AddChildren(root)
	mem.Retain() // the exported struct's, until its last release
	block := (*exportBlock)(unsafe.Pointer(bridge.NewTree(
		sizeofBlock + uintptr(size.Structs)*sizeofArray + uintptr(size.Pointers)*sizeofPointer)))
	if block == nil {
		mem.Release()
		return errNoMemory
	}
	block.Live = int64(size.Structs) + 1
	block.Own(traced(kind, mem))
	block.noBuffer = 0

	start := uintptr(unsafe.Pointer(block))
	f := filler{
		block:    start,
		structs:  start + sizeofBlock,
		pointers: start + sizeofBlock + uintptr(size.Structs)*sizeofArray,
	}
	f.fill(root, out)
	if root.Type == nil { // a record batch: no bitmap, whatever the columns have
		out.NBuffers = 1
		out.Buffers = uintptr(unsafe.Pointer(&block.noBuffer))
	}
	return nil
}

// filler fills C structs from nodes; structs and pointers are where the next
// free ones lie in the block.
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
