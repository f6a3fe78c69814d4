//go:build cgo

package cdata

import (
	"context"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/hostview"
	"github.com/arrowdevice/arrowdevice/internal/schema"
)

// ImportCArrowField makes a field of a C schema, and releases the schema, even if it returns an error.
func ImportCArrowField(out *CArrowSchema) (arrow.Field, error) {
	return schema.ImportAsStorage((*abi.ArrowSchema)(unsafe.Pointer(out)))
}

// ImportCArrowSchema makes a schema of a C schema, which must be a struct, and releases it, even if it returns
// an error. An array's schema that is no struct is imported by [ImportCArrowField].
func ImportCArrowSchema(out *CArrowSchema) (*arrow.Schema, error) {
	return schema.ImportSchemaAsStorage((*abi.ArrowSchema)(unsafe.Pointer(out)))
}

// ImportCArrayWithType makes an array of a C struct whose type is known, without copying.
//
// It moves *arr, or releases it if it returns an error: in both cases it is marked released, and releasing it
// once more does nothing. The producer's release callback is called after the last use of the memory: when the
// array, and all that retains its data, is released, on the thread that does so.
func ImportCArrayWithType(arr *CArrowArray, dt arrow.DataType) (arrow.Array, error) {
	imported, err := cdevice.ImportArrayWithType(arr, dt)
	if err != nil {
		return nil, err
	}
	defer imported.Release()
	return imported.HostView(context.Background())
}

// ImportCArray makes an array and its field of two C structs; see [ImportCArrayWithType]. It releases *schema,
// even if it returns an error; the field is valid if only the array is wrong.
func ImportCArray(arr *CArrowArray, schema *CArrowSchema) (arrow.Field, arrow.Array, error) {
	if err := checkOrder(arr, schema); err != nil {
		return arrow.Field{}, nil, err
	}
	field, err := ImportCArrowField(schema)
	if err != nil {
		cdevice.ReleaseStruct(arr)
		return arrow.Field{}, nil, err
	}
	array, err := ImportCArrayWithType(arr, field.Type)
	return field, array, err
}

// ImportCRecordBatchWithSchema makes a record batch of a C struct whose schema is known, without copying; see
// [ImportCArrayWithType]. The batch has the schema sc itself.
//
// The C struct must be a struct array without nulls. An offset of it becomes one of each column.
func ImportCRecordBatchWithSchema(arr *CArrowArray, sc *arrow.Schema) (arrow.RecordBatch, error) {
	return hostview.Import((*abi.ArrowArray)(unsafe.Pointer(arr)), sc, batchTooMany)
}

// ImportCRecordBatch makes a record batch of two C structs; see [ImportCRecordBatchWithSchema]. It releases
// *sc, even if it returns an error.
func ImportCRecordBatch(arr *CArrowArray, sc *CArrowSchema) (arrow.RecordBatch, error) {
	if err := checkOrder(arr, sc); err != nil {
		return nil, err
	}
	schema, err := ImportCArrowSchema(sc)
	if err != nil {
		ReleaseCArrowArray(arr)
		return nil, err
	}
	return ImportCRecordBatchWithSchema(arr, schema)
}

func checkOrder(arr *CArrowArray, schema *CArrowSchema) error {
	return cstruct.CheckOrder("ArrowArray", (*abi.ArrowArray)(unsafe.Pointer(arr)), (*abi.ArrowSchema)(unsafe.Pointer(schema)))
}

func viewBorrowed(batch *cdevice.RecordBatch, schema *arrow.Schema) (arrow.RecordBatch, error) {
	rec, err := batch.HostView(context.Background())
	if err != nil {
		return nil, err
	}
	if rec, ok := rec.(*hostview.Batch); ok { // and not the record batch that was wrapped
		rec.Lenient(schema, batchTooMany)
	}
	return rec, nil
}
