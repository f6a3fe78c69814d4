//go:build cdata_over

// Package cdata stands in for arrow-go's package of the same name under arrow-go's own tests of it, which are compiled
// into it: the functions are those of this module's package cdata. Only the C types are the package's own, as cgo's are.
//
// It is compiled in the module that module.sh makes, without the constraint above.
package cdata

// #include <stdlib.h>
// #include "abi.h"
//
// static void release_nothing(struct ArrowArray* a) { a->release = NULL; }
// static void set_release(struct ArrowArray* a) { a->release = release_nothing; }
import "C"

import (
	"context"
	"errors"
	"runtime/cgo"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/arrio"

	"github.com/arrowdevice/arrowdevice/cdata"
)

type (
	CArrowSchema                   = C.struct_ArrowSchema
	CArrowArray                    = C.struct_ArrowArray
	CArrowArrayStream              = C.struct_ArrowArrayStream
	CArrowAsyncDeviceStreamHandler = C.struct_ArrowAsyncDeviceStreamHandler

	RecordMessage          = cdata.RecordMessage
	AsyncRecordBatchStream = cdata.AsyncRecordBatchStream
	AsyncStreamError       = cdata.AsyncStreamError
)

func schemaOf(s *CArrowSchema) *cdata.CArrowSchema { return (*cdata.CArrowSchema)(unsafe.Pointer(s)) }

func arrayOf(a *CArrowArray) *cdata.CArrowArray { return (*cdata.CArrowArray)(unsafe.Pointer(a)) }

func streamOf(s *CArrowArrayStream) *cdata.CArrowArrayStream {
	return (*cdata.CArrowArrayStream)(unsafe.Pointer(s))
}

func handlerOf(h *CArrowAsyncDeviceStreamHandler) *cdata.CArrowAsyncDeviceStreamHandler {
	return (*cdata.CArrowAsyncDeviceStreamHandler)(unsafe.Pointer(h))
}

func ImportCArrowField(s *CArrowSchema) (arrow.Field, error) {
	return cdata.ImportCArrowField(schemaOf(s))
}

func ImportCArrowSchema(s *CArrowSchema) (*arrow.Schema, error) {
	return cdata.ImportCArrowSchema(schemaOf(s))
}

func ImportCArrayWithType(a *CArrowArray, dt arrow.DataType) (arrow.Array, error) {
	return cdata.ImportCArrayWithType(arrayOf(a), dt)
}

func ImportCArray(a *CArrowArray, s *CArrowSchema) (arrow.Field, arrow.Array, error) {
	return cdata.ImportCArray(arrayOf(a), schemaOf(s))
}

func ImportCRecordBatch(a *CArrowArray, s *CArrowSchema) (arrow.RecordBatch, error) {
	return cdata.ImportCRecordBatch(arrayOf(a), schemaOf(s))
}

func ImportCRecordBatchWithSchema(a *CArrowArray, s *arrow.Schema) (arrow.RecordBatch, error) {
	return cdata.ImportCRecordBatchWithSchema(arrayOf(a), s)
}

func ImportCRecordReader(s *CArrowArrayStream, schema *arrow.Schema) (arrio.Reader, error) {
	return cdata.ImportCRecordReader(streamOf(s), schema)
}

func ImportCArrayStream(s *CArrowArrayStream, schema *arrow.Schema) arrio.Reader {
	return cdata.ImportCArrayStream(streamOf(s), schema)
}

func ExportArrowSchema(schema *arrow.Schema, out *CArrowSchema) {
	cdata.ExportArrowSchema(schema, schemaOf(out))
}

func ExportArrowRecordBatch(rb arrow.RecordBatch, out *CArrowArray, outSchema *CArrowSchema) {
	cdata.ExportArrowRecordBatch(rb, arrayOf(out), schemaOf(outSchema))
}

func ExportArrowArray(arr arrow.Array, out *CArrowArray, outSchema *CArrowSchema) {
	cdata.ExportArrowArray(arr, arrayOf(out), schemaOf(outSchema))
}

func ExportRecordReader(r array.RecordReader, out *CArrowArrayStream) {
	cdata.ExportRecordReader(r, streamOf(out))
}

func ReleaseCArrowArray(a *CArrowArray) { cdata.ReleaseCArrowArray(arrayOf(a)) }

func ReleaseCArrowSchema(s *CArrowSchema) { cdata.ReleaseCArrowSchema(schemaOf(s)) }

func ReleaseCArrowArrayStream(s *CArrowArrayStream) { cdata.ReleaseCArrowArrayStream(streamOf(s)) }

func CreateAsyncDeviceStreamHandler(ctx context.Context, queueSize uint64, out *CArrowAsyncDeviceStreamHandler) <-chan AsyncRecordBatchStream {
	return cdata.CreateAsyncDeviceStreamHandler(ctx, queueSize, handlerOf(out))
}

func ExportAsyncRecordBatchStream(schema *arrow.Schema, stream <-chan RecordMessage, handler *CArrowAsyncDeviceStreamHandler) error {
	return cdata.ExportAsyncRecordBatchStream(schema, stream, handlerOf(handler))
}

// What is below are names of the package's internals, by which the tests ask it directly. The exported functions answer.

func importSchema(s *CArrowSchema) (arrow.Field, error) { return ImportCArrowField(s) }

func importCArrayAsType(a *CArrowArray, dt arrow.DataType) (*cimporter, error) {
	imp := &cimporter{arr: a, dt: dt}
	return imp, imp.doImport()
}

type cimporter struct {
	arr *CArrowArray
	dt  arrow.DataType
}

// doImport gives the array a release callback: the tests have arrays without one, which are refused for that alone.
func (imp *cimporter) doImport() error {
	C.set_release(imp.arr)
	arr, err := ImportCArrayWithType(imp.arr, imp.dt)
	if imp.arr.release != nil {
		return errors.Join(err, errors.New("the array is not released"))
	}
	if err == nil {
		arr.Release()
	}
	return err
}

// validateCArrayHeader imports an array as one of null type, which is right if it has only a length.
func validateCArrayHeader(a *CArrowArray) error {
	if a == nil {
		_, err := ImportCArrayWithType(nil, arrow.Null)
		return err
	}
	return (&cimporter{arr: a, dt: arrow.Null}).doImport()
}

func createHandle(h cgo.Handle) unsafe.Pointer {
	p := C.malloc(C.size_t(unsafe.Sizeof(h)))
	*(*cgo.Handle)(p) = h
	return p
}

func getHandle(p unsafe.Pointer) cgo.Handle { return *(*cgo.Handle)(p) }

// cRecordReader is what a handle behind the private_data of a stream has, in arrow-go's package.
type cRecordReader struct{ rdr array.RecordReader }
