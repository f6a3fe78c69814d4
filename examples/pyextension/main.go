// Command pyextension is a Python extension in Go: it adds a column to a batch of PyArrow's.
//
//	go build -buildmode=c-shared -o libpyextension.so ./examples/pyextension
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
// at outArray and outSchema when it succeeds. It returns NULL, or a message to free.
//
//export add_running_total
func add_running_total(array, schema uintptr, column *C.char, outArray, outSchema uintptr) *C.char {
	if err := addRunningTotal(array, schema, C.GoString(column), outArray, outSchema); err != nil {
		return C.CString(err.Error())
	}
	return nil
}

func addRunningTotal(array, schema uintptr, column string, outArray, outSchema uintptr) (err error) {
	defer func() {
		if v := recover(); v != nil { // no panic may cross into C
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	in, err := cdevice.ImportRecordBatch(cdevice.DeviceArrayFromPtr(array), cdevice.SchemaFromPtr(schema))
	if err != nil {
		return err
	}
	defer in.Release()
	if err := in.ValidateFull(context.Background()); err != nil { // it comes from another language
		return err
	}
	rec, err := in.HostView(context.Background()) // the same memory
	if err != nil {
		return err
	}
	defer rec.Release()
	more, err := withRunningTotal(rec, column)
	if err != nil {
		return err
	}
	defer more.Release()
	out, err := cdevice.WrapRecordBatch(more, device.CPUDevice())
	if err != nil {
		return err
	}
	defer out.Release() // the exported struct holds the memory on its own
	return cdevice.ExportRecordBatch(out, cdevice.DeviceArrayFromPtr(outArray), cdevice.SchemaFromPtr(outSchema))
}
