// Command pyextension is a Python extension written in Go: a shared library with
// one function that takes a record batch of PyArrow's, adds a column, and gives
// the batch back. The columns that were there before are not copied.
//
//	go build -buildmode=c-shared -o libpyextension.so ./examples/pyextension
//	python examples/pyextension/use.py libpyextension.so
package main

import "C"

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

func main() {} // c-shared wants one

// add_running_total takes the structs at array and schema, even if it fails,
// and fills those at outArray and outSchema when it succeeds. It returns NULL, or
// a message that the caller frees.
//
//export add_running_total
func add_running_total(array, schema uintptr, column *C.char, outArray, outSchema uintptr) (message *C.char) {
	defer func() {
		if v := recover(); v != nil { // no panic may cross into C
			message = C.CString(fmt.Sprint(v))
		}
	}()
	in, err := cdevice.ImportRecordBatch(cdevice.DeviceArrayFromPtr(array), cdevice.SchemaFromPtr(schema))
	if err != nil {
		return C.CString(err.Error())
	}
	defer in.Release()
	// The input comes from another language: check what it holds, too.
	if err := in.ValidateFull(context.Background()); err != nil {
		return C.CString(err.Error())
	}
	out, err := addRunningTotal(in, C.GoString(column))
	if err != nil {
		return C.CString(err.Error())
	}
	defer out.Release()
	if err := cdevice.ExportRecordBatch(out, cdevice.DeviceArrayFromPtr(outArray), cdevice.SchemaFromPtr(outSchema)); err != nil {
		return C.CString(err.Error())
	}
	return nil
}

// addRunningTotal returns the batch with one column more: the sum of the values
// of a float64 column up to each row, nulls skipped. The caller releases it.
func addRunningTotal(batch *cdevice.RecordBatch, column string) (*cdevice.RecordBatch, error) {
	rec, err := batch.HostView(context.Background())
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	found := rec.Schema().FieldIndices(column)
	if len(found) != 1 {
		return nil, fmt.Errorf("there are %d columns with the name %q", len(found), column)
	}
	values, ok := rec.Column(found[0]).(*array.Float64)
	if !ok {
		return nil, fmt.Errorf("column %q is %s, not double", column, rec.Column(found[0]).DataType())
	}

	builder := array.NewFloat64Builder(memory.DefaultAllocator)
	defer builder.Release()
	total := 0.0
	for i := range values.Len() {
		if values.IsValid(i) {
			total += values.Value(i)
		}
		builder.Append(total)
	}
	totals := builder.NewArray()
	defer totals.Release()

	fields := append(rec.Schema().Fields(), arrow.Field{Name: column + "_total", Type: totals.DataType()})
	metadata := rec.Schema().Metadata()
	more := array.NewRecordBatch(arrow.NewSchema(fields, &metadata), append(rec.Columns()[:rec.NumCols():rec.NumCols()], totals), rec.NumRows())
	defer more.Release()
	return cdevice.WrapRecordBatch(more, device.CPUDevice())
}
