// Command pyextension is a Python extension written in Go: a function that takes a record
// batch of PyArrow's, adds a column without copying the others, and gives the batch back.
//
//	go build -buildmode=c-shared -o libpyextension.so ./examples/pyextension
//	python examples/pyextension/use.py libpyextension.so
package main

import "C"

import (
	"context"
	"fmt"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

func main() {} // c-shared wants one

// add_running_total takes the structs at array and schema, even if it fails, and fills those
// at outArray and outSchema when it succeeds. It returns NULL, or a message that the caller frees.
//
//export add_running_total
func add_running_total(array, schema uintptr, column *C.char, outArray, outSchema uintptr) (message *C.char) {
	defer func() {
		if v := recover(); v != nil { // no panic may cross into C
			message = C.CString(fmt.Sprint(v))
		}
	}()
	// The input comes from another language: check what it holds, too.
	in, err := cdevice.ImportRecordBatch(cdevice.DeviceArrayFromPtr(array), cdevice.SchemaFromPtr(schema),
		cdevice.WithFullValidation(context.Background()))
	if err != nil {
		return C.CString(err.Error())
	}
	defer in.Release()
	out, err := addColumn(in, C.GoString(column))
	if err != nil {
		return C.CString(err.Error())
	}
	defer out.Release()
	if err := cdevice.ExportRecordBatch(out, cdevice.DeviceArrayFromPtr(outArray), cdevice.SchemaFromPtr(outSchema)); err != nil {
		return C.CString(err.Error())
	}
	return nil
}

func addColumn(batch *cdevice.RecordBatch, column string) (*cdevice.RecordBatch, error) {
	rec, err := batch.HostView(context.Background()) // the same memory
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	more, err := withRunningTotal(rec, column)
	if err != nil {
		return nil, err
	}
	defer more.Release()
	return cdevice.WrapRecordBatch(more, device.CPUDevice())
}
