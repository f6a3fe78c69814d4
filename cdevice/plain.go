//go:build cgo

package cdevice

import (
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/schema"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Import and export of the structs of the C data interface, which have no device. Those of the C
// stream interface are in plain_stream.go.

// ArrayFromPtr returns the struct ArrowArray at an address, as other languages pass it:
// PyArrow's _export_to_c, or a capsule of __arrow_c_array__. It borrows the struct.
func ArrayFromPtr(ptr uintptr) *cdata.CArrowArray { return abi.At[cdata.CArrowArray](ptr) }

// ReleaseCArrowArray calls the release callback of a struct that was not imported. It does nothing
// if the struct is nil or released.
func ReleaseCArrowArray(arr *cdata.CArrowArray) {
	if a := arrayMirror(arr); a != nil {
		releaseArray(a)
	}
}

// arrayMirror converts a pointer to cdata's C struct to one to our mirror of the same struct.
func arrayMirror(a *cdata.CArrowArray) *abi.ArrowArray {
	return (*abi.ArrowArray)(unsafe.Pointer(a))
}

// ExportPlainRecordBatch fills the plain struct *out, and *outSchema unless it is nil, with the
// batch: a struct array whose children are the columns. It does not copy or wait. It is
// [ExportRecordBatch] for consumers that know no device.
//
// A plain struct has no device and no event: the CPU must be able to access the memory (otherwise
// an error names the device and wraps device.ErrNotSupported), and the batch must have no event
// (otherwise the error wraps arrow.ErrInvalid). [RecordBatch.AsCPU] waits for the event,
// [RecordBatch.CopyTo] with [device.CPUDevice] copies.
//
// The exported struct holds the memory on its own until the consumer releases it, on any thread;
// children may be moved out and outlive their parent. The consumer uses the memory on the CPU only,
// so the release does not wait for a device. The batch stays the caller's, and can be exported any
// number of times.
//
// It writes *out and *outSchema only on success, over their contents: an unreleased struct there leaks.
//
// https://arrow.apache.org/docs/format/CDataInterface.html#the-arrowarray-structure
func ExportPlainRecordBatch(batch *RecordBatch, out *cdata.CArrowArray, outSchema *cdata.CArrowSchema) error {
	if batch == nil {
		return fielderr.Absent(fielderr.OpExport, "RecordBatch", "a batch")
	}
	if err := batch.hold(fielderr.OpExport); err != nil {
		return err
	}
	defer batch.mem.Release()
	if err := checkPlainExport("RecordBatch", batch.at(), out); err != nil {
		return err
	}
	var t cstruct.Tree
	batch.exported(&t)
	return cstruct.Export(cstruct.PlainKind, &t, arrayMirror(out), schemaMirror(outSchema), func(s *abi.ArrowSchema) error {
		return schema.ExportSchema(batch.schema, s)
	})
}

// ExportPlainArray fills the plain struct *out, and *outSchema unless it is nil, with one array.
// Everything said of [ExportPlainRecordBatch] holds; the schema is the array's field.
//
// It writes *out and *outSchema only on success, over their contents: an unreleased struct there leaks.
func ExportPlainArray(array *Array, out *cdata.CArrowArray, outSchema *cdata.CArrowSchema) error {
	if array == nil {
		return fielderr.Absent(fielderr.OpExport, "Array", "an array")
	}
	if err := array.hold(fielderr.OpExport); err != nil {
		return err
	}
	defer array.mem.Release()
	if err := checkPlainExport("Array", array.at(), out); err != nil {
		return err
	}
	t := cstruct.Tree{Mem: array.mem, Root: array.node}
	return cstruct.Export(cstruct.PlainKind, &t, arrayMirror(out), schemaMirror(outSchema), func(s *abi.ArrowSchema) error {
		return schema.Export(array.field, s)
	})
}

// checkPlainExport returns an error unless the CPU may read the memory now. A plain export does not
// call MarkExported: a consumer of a plain struct has no device stream, so its release ends its use
// of the memory.
func checkPlainExport(what string, at tree.Location, out *cdata.CArrowArray) error {
	if out == nil {
		return noOutput("ArrowArray")
	}
	if !at.CPUAccessible() {
		err := fmt.Errorf("%s: %w", at.NotAccessible(), device.ErrNotSupported)
		return fielderr.New(fielderr.OpExport, what+".DeviceID", at.ID.String(), "memory that the CPU can access", err)
	}
	if at.Event != 0 {
		return fielderr.Invalid(fielderr.OpExport, what+".sync_event", fielderr.Hex(at.Event), "none: AsCPU waits for it")
	}
	return nil
}

// ImportPlainRecordBatch makes a batch of a plain C struct, without copying: it is
// [ImportRecordBatch] for structs of the C data interface, whose memory is the CPU's and ready. The
// checks, errors and options are the same; [WithDevice] with a device other than the CPU is an
// error.
//
// It takes ownership of *arr and *sch, even if it returns an error: both are marked
// released.
//
// https://arrow.apache.org/docs/format/CDataInterface.html#the-arrowarray-structure
func ImportPlainRecordBatch(arr *cdata.CArrowArray, sch *cdata.CArrowSchema, opts ...ImportOption) (*RecordBatch, error) {
	var in cstruct.Input
	in.SetPlain(arrayMirror(arr))
	return importBatchAndSchema(&in, sch, opts)
}

// ImportPlainRecordBatchWithSchema is [ImportPlainRecordBatch] with a schema that is already known. The
// batch has a copy of *s.
//
// It takes ownership of *arr, even if it returns an error.
func ImportPlainRecordBatchWithSchema(arr *cdata.CArrowArray, s *arrow.Schema, opts ...ImportOption) (*RecordBatch, error) {
	var in cstruct.Input
	in.SetPlain(arrayMirror(arr))
	return importBatch(&in, s, true, importOptionsFor(&in, opts))
}

// ImportPlainArray makes an array of a plain C struct and its schema; everything said of
// [ImportPlainRecordBatch] holds. The array's Field has the schema's name, nullability and
// metadata.
//
// It takes ownership of *arr and *sch, even if it returns an error.
func ImportPlainArray(arr *cdata.CArrowArray, sch *cdata.CArrowSchema, opts ...ImportOption) (*Array, error) {
	var in cstruct.Input
	in.SetPlain(arrayMirror(arr))
	return importArrayAndSchema(&in, sch, opts)
}

// ImportPlainArrayWithType is [ImportPlainArray] with a type that is already known.
//
// It takes ownership of *arr, even if it returns an error.
func ImportPlainArrayWithType(arr *cdata.CArrowArray, dt arrow.DataType, opts ...ImportOption) (*Array, error) {
	var in cstruct.Input
	in.SetPlain(arrayMirror(arr))
	return importArray(&in, arrow.Field{Type: dt, Nullable: true}, importOptionsFor(&in, opts))
}
