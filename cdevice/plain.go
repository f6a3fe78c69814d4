//go:build cgo

package cdevice

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/schema"
)

// The plain structs are those of the C data interface, which know no device: ArrowArray
// here, ArrowArrayStream in plainstream.go.

// ArrayFromPtr returns the struct ArrowArray at an address, as other languages pass it:
// PyArrow's _export_to_c, or a capsule of __arrow_c_array__. It borrows the struct.
func ArrayFromPtr(ptr uintptr) *cdata.CArrowArray { return abi.At[cdata.CArrowArray](ptr) }

// ReleaseCArrowArray calls the release callback of a struct that was not imported. A nil or
// released struct is left alone.
func ReleaseCArrowArray(arr *cdata.CArrowArray) {
	if a := arrayMirror(arr); a != nil {
		releaseArray(a)
	}
}

// arrayMirror sees cdata's C struct through our mirror of the same struct.
func arrayMirror(a *cdata.CArrowArray) *abi.ArrowArray {
	return (*abi.ArrowArray)(unsafe.Pointer(a))
}

// ExportPlainRecordBatch fills the plain struct *out, and *outSchema unless it is nil, with
// the batch: a struct array whose children are the columns. No data is copied. It is
// [ExportRecordBatch] for consumers that know no device.
//
// A plain struct has no event, so the export waits until the memory may be read: for the
// batch's event, and for the stream of [ReadyAfter]; ctx ends the wait with an error. Memory
// that the host cannot read is an error that wraps device.ErrNotSupported and names the
// batch's device. [Synchronized] and [ForHost] ask for what every plain export does; their
// contexts end the wait too. [ForCuDF] is an error: libcudf takes device structs.
//
// The exported struct holds the memory on its own until the consumer releases it, on any
// thread; children may be moved out and outlive their parent. The consumer uses the memory
// on the CPU and is done when it releases it: that release waits for no device. The batch
// stays the caller's, and can be exported any number of times.
//
// It writes *out and *outSchema only on success, and does not look at what they held: a struct that was
// not released is overwritten and lost.
//
// https://arrow.apache.org/docs/format/CDataInterface.html#the-arrowarray-structure
func ExportPlainRecordBatch(ctx context.Context, batch *RecordBatch, out *cdata.CArrowArray, outSchema *cdata.CArrowSchema, opts ...ExportOption) error {
	if batch == nil {
		return absent(opExport, "RecordBatch", "a batch")
	}
	if err := hold(opExport, &batch.refs, batch.mem, "RecordBatch"); err != nil {
		return err
	}
	defer batch.mem.Release()
	if err := readyForPlain(ctx, "RecordBatch", batch.place, out, opts); err != nil {
		return err
	}
	root := node{layout: &layouts[storeStruct], length: batch.rows, children: batch.columns}
	_, err := exportStructs(exportedPlainKind, &root, batch.mem, nil, arrayMirror(out), outSchema, func(s *abi.ArrowSchema) error {
		return schema.ExportSchema(batch.schema, s)
	})
	return err
}

// ExportPlainArray fills the plain struct *out, and *outSchema unless it is nil, with one
// array. All of [ExportPlainRecordBatch] holds; the schema is the array's field.
//
// It writes *out and *outSchema only on success, and does not look at what they held: a struct that was
// not released is overwritten and lost.
func ExportPlainArray(ctx context.Context, array *Array, out *cdata.CArrowArray, outSchema *cdata.CArrowSchema, opts ...ExportOption) error {
	if array == nil {
		return absent(opExport, "Array", "an array")
	}
	if err := hold(opExport, &array.refs, array.mem, "Array"); err != nil {
		return err
	}
	defer array.mem.Release()
	if err := readyForPlain(ctx, "Array", array.place, out, opts); err != nil {
		return err
	}
	_, err := exportStructs(exportedPlainKind, &array.node, array.mem, nil, arrayMirror(out), outSchema, func(s *abi.ArrowSchema) error {
		return schema.Export(array.field, s)
	})
	return err
}

// readyForPlain checks the arguments of a plain export, and returns once the host may read
// the memory. There is no mem.lend: a consumer of a plain struct has no device's streams
// behind it, so that its release is the end of its use.
func readyForPlain(ctx context.Context, what string, at place, out *cdata.CArrowArray, opts []ExportOption) error {
	if ctx == nil {
		return absent(opExport, "ctx", "a context")
	}
	if out == nil {
		return noOutput("ArrowArray")
	}
	if err := contextError(ctx, "export"); err != nil {
		return err
	}
	if !at.hostReadable() {
		err := fmt.Errorf("%s: %w", at.notReadable(), device.ErrNotSupported)
		return fieldError(opExport, what+".DeviceID", at.id.String(), "memory that the host can read", err)
	}
	if len(opts) == 0 {
		return at.wait(ctx)
	}
	return waitForPlain(ctx, at, opts)
}

// waitForPlain waits as the options ask, and for the event.
func waitForPlain(ctx context.Context, at place, opts []ExportOption) error {
	o, err := plainOptions(opts)
	if err != nil {
		return err
	}
	if o.readyAfter {
		if err := at.checkStream(opExport, "ReadyAfter", o.after); err != nil {
			return err
		}
	}
	if o.ctx != nil {
		if err := contextError(o.ctx, "export"); err != nil {
			return err
		}
	}
	ctx, end := o.bound(ctx)
	defer end()
	if o.after != nil {
		if err := o.after.Synchronize(ctx); err != nil {
			return fmt.Errorf("cdevice: export: wait for the stream: %w", err)
		}
	}
	return at.wait(ctx)
}

// plainOptions are the options of a plain export.
func plainOptions(opts []ExportOption) (exportOptions, error) {
	var o exportOptions
	apply(&o, opts)
	if o.err != nil {
		return o, o.err
	}
	if o.cuDF {
		return o, invalid(opExport, "ForCuDF", "an option of a plain export", "a device export: libcudf takes ArrowDeviceArray")
	}
	return o, nil
}

// ImportPlainRecordBatch makes a batch of a plain C struct, without copying: it is
// [ImportRecordBatch] for structs of the C data interface, whose memory is the CPU's and
// ready. All of that function holds, its checks, errors and options; [WithDevice] of another
// device than the CPU is an error.
//
// It takes ownership of *arr and *sch, even if it returns an error: both are marked
// released.
//
// https://arrow.apache.org/docs/format/CDataInterface.html#the-arrowarray-structure
func ImportPlainRecordBatch(arr *cdata.CArrowArray, sch *cdata.CArrowSchema, opts ...ImportOption) (*RecordBatch, error) {
	return importBatchAndSchema(plainInput(arrayMirror(arr)), sch, opts)
}

// ImportPlainRecordBatchWithSchema is [ImportPlainRecordBatch] where the schema is known.
//
// It takes ownership of *arr, even if it returns an error.
func ImportPlainRecordBatchWithSchema(arr *cdata.CArrowArray, s *arrow.Schema, opts ...ImportOption) (*RecordBatch, error) {
	return importBatch(plainInput(arrayMirror(arr)), s, opts)
}

// ImportPlainArray makes an array of a plain C struct and its schema; all of
// [ImportPlainRecordBatch] holds. The array's Field has the schema's name, nullability and
// metadata.
//
// It takes ownership of *arr and *sch, even if it returns an error.
func ImportPlainArray(arr *cdata.CArrowArray, sch *cdata.CArrowSchema, opts ...ImportOption) (*Array, error) {
	return importArrayAndSchema(plainInput(arrayMirror(arr)), sch, opts)
}

// ImportPlainArrayWithType is [ImportPlainArray] where the type is known.
//
// It takes ownership of *arr, even if it returns an error.
func ImportPlainArrayWithType(arr *cdata.CArrowArray, dt arrow.DataType, opts ...ImportOption) (*Array, error) {
	return importArray(plainInput(arrayMirror(arr)), arrow.Field{Type: dt, Nullable: true}, opts)
}
