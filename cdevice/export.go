//go:build cgo

package cdevice

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/schema"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// ExportRecordBatch fills *out, and *outSchema unless it is nil, with the batch: a struct array
// whose children are the columns. No data is copied, read or waited for; the batch's event becomes
// sync_event. *out is an ArrowDeviceArray or, for consumers that know no device, an ArrowArray. For consumers with other requirements, export the result of [RecordBatch.AsCPU],
// [RecordBatch.WithEvent], [RecordBatch.ForCuDF] or [RecordBatch.CopyTo], or call
// [RecordBatch.Synchronize] first.
//
// The exported struct holds the memory on its own until the consumer releases
// it, on any thread; children may be moved out and outlive their parent. The
// batch stays the caller's, and can be exported any number of times.
//
// The release does not wait. Memory of a GPU, and pinned and managed memory, that was copied or wrapped is
// freed after all work that is enqueued by then on any stream of its GPU and of the other GPUs that
// this process has opened (device.Open, cudaalloc.Open). A consumer whose pending work on another GPU,
// or in another process, accesses the memory must wait for that work before it calls release.
// Of an imported batch, release calls that of its producer, after the work that [RecordBatch.UsedOn] recorded.
//
// An ArrowArray has no device and no event. The CPU must be able to access the memory (otherwise
// an error names the device and wraps device.ErrNotSupported), and the batch must have no event
// (otherwise the error wraps arrow.ErrInvalid). [RecordBatch.AsCPU] waits for the event,
// [RecordBatch.CopyTo] with [device.CPUDevice] copies. Its consumer uses the memory on the CPU only, so
// the memory is freed at once when it is released.
//
// It writes *out and *outSchema only on success, over their contents: an unreleased struct there leaks.
//
// Errors wrap [ErrReleased] for a batch that was released, arrow.ErrInvalid or
// arrow.ErrNotImplemented for a schema that C cannot express.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#record-batches
// https://arrow.apache.org/docs/format/CDataInterface.html#the-arrowarray-structure
func ExportRecordBatch[S ArrayStruct](batch *RecordBatch, out *S, outSchema *cdata.CArrowSchema) error {
	if batch == nil {
		return fielderr.Absent(fielderr.OpExport, "RecordBatch", "a batch")
	}
	if err := batch.hold(fielderr.OpExport); err != nil {
		return err
	}
	t := cstruct.Tree{Mem: batch.mem}
	defer t.Drop() // what no struct has taken
	batch.exported(&t)
	return export(&t, "RecordBatch", batch.at(), out, outSchema, func(s *abi.ArrowSchema) error {
		return schema.ExportSchema(batch.schema, s)
	})
}

// ExportArray fills *out, and *outSchema unless it is nil, with one array. All
// of [ExportRecordBatch] holds; the schema is the array's field.
//
// It writes *out and *outSchema only on success, over their contents: an unreleased struct there leaks.
func ExportArray[S ArrayStruct](array *Array, out *S, outSchema *cdata.CArrowSchema) error {
	if array == nil {
		return fielderr.Absent(fielderr.OpExport, "Array", "an array")
	}
	if err := array.hold(fielderr.OpExport); err != nil {
		return err
	}
	t := cstruct.Tree{Mem: array.mem, Root: array.node}
	defer t.Drop()
	return export(&t, "Array", array.at(), out, outSchema, func(s *abi.ArrowSchema) error {
		return schema.Export(array.field, s)
	})
}

// ExportSchema fills *out with a schema alone, for interfaces that pass it
// separately. It writes *out only on success, over its contents: an unreleased struct there leaks.
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
	if argument.IsNil(field.Type) {
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

// exported sets *t, which has the memory and is zero otherwise, to what an export of the batch fills C structs with.
func (b *RecordBatch) exported(t *cstruct.Tree) {
	t.Root.Length = b.rows
	if w, ok := b.columns.Source().(*cstruct.Wrapped); ok {
		t.Wrapped = w
		return
	}
	t.Root.Layout, t.Root.Children = &layout.All[layout.Struct], b.nodes()
}

// export writes to the caller's structs only when nothing can fail any more. what names the item in errors.
func export[S ArrayStruct](t *cstruct.Tree, what string, at tree.Location, out *S, outSchema *cdata.CArrowSchema,
	exportSchema func(*abi.ArrowSchema) error,
) error {
	switch out := any(out).(type) {
	case *CArrowDeviceArray:
		return exportDevice(t, at, out, schemaMirror(outSchema), exportSchema)
	case *cdata.CArrowArray:
		if err := checkPlainExport(what, at, out); err != nil {
			return err
		}
		return cstruct.Export(cstruct.PlainKind, t, arrayMirror(out), schemaMirror(outSchema), exportSchema)
	}
	panic("unreachable")
}

func exportDevice(t *cstruct.Tree, at tree.Location, out *CArrowDeviceArray, outSchema *abi.ArrowSchema,
	exportSchema func(*abi.ArrowSchema) error,
) error {
	if out == nil {
		return noOutput("ArrowDeviceArray")
	}
	mem := t.Mem
	if err := cstruct.Export(cstruct.DeviceKind, t, &deviceMirror(out).Array, outSchema, exportSchema); err != nil {
		return err
	}
	mem.MarkExported()
	out.DeviceID = at.ID.Ordinal
	out.DeviceType = int32(at.ID.Type)
	// mutant: out.SyncEvent = 0
	out.SyncEvent = at.Event
	out.Reserved = [3]int64{}
	return nil
}

// checkPlainExport returns an error unless the CPU may read the memory now. A plain export does not
// call MarkExported: a consumer of an ArrowArray has no stream of a device, so its release ends its use
// of the memory.
func checkPlainExport(what string, at tree.Location, out *cdata.CArrowArray) error {
	if out == nil {
		return noOutput("ArrowArray")
	}
	if !at.CPUAccessible() {
		err := at.NotAccessible("CopyTo with device.CPUDevice() copies it")
		return fielderr.New(fielderr.OpExport, what+".DeviceID", at.ID.String(), "memory that the CPU can access", err)
	}
	if at.Event != 0 {
		return fielderr.Invalid(fielderr.OpExport, what+".sync_event", fielderr.Hex(at.Event), "none: AsCPU or Synchronize waits for it")
	}
	return nil
}
