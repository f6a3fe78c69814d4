package cdevice_test

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// trips is a small record batch; the caller releases it.
func trips() arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{
		{Name: "city", Type: arrow.BinaryTypes.String},
		{Name: "km", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
	}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.StringBuilder).AppendValues([]string{"Oslo", "Lima", "Pune"}, nil)
	b.Field(1).(*array.Float64Builder).AppendValues([]float64{12.5, 0, 3}, []bool{true, false, true})
	return b.NewRecordBatch()
}

// A batch is exported as C structs and imported again: the memory is the same.
func Example() {
	rec := trips()
	defer rec.Release()
	batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer batch.Release()

	// A consumer in another language passes the addresses of its own structs;
	// see DeviceArrayFromPtr and SchemaFromPtr.
	var out cdevice.CArrowDeviceArray
	var outSchema cdata.CArrowSchema
	if err := cdevice.ExportRecordBatch(batch, &out, &outSchema); err != nil {
		fmt.Println(err)
		return
	}

	back, err := cdevice.ImportRecordBatch(&out, &outSchema)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer back.Release()
	view, err := back.HostView(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer view.Release()
	fmt.Println(back.DeviceID(), view.NumRows(), view.Column(0))
	// Output: cpu 3 ["Oslo" "Lima" "Pune"]
}

// The values, the text and the nulls of columns are read in place.
func ExampleRecordBatch_ColumnView() {
	rec := trips()
	defer rec.Release()
	batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer batch.Release() // ends what follows
	cities, err := batch.ColumnView(context.Background(), 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	names, err := cities.Strings(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	distances, err := batch.ColumnView(context.Background(), 1)
	if err != nil {
		fmt.Println(err)
		return
	}
	km, err := cdevice.Values[float64](distances)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range km {
		if !distances.IsNull(i) {
			fmt.Println(names.At(i), km[i])
		}
	}
	// Output:
	// Oslo 12.5
	// Pune 3
}

// An error names the field of the C struct that is wrong, and the struct is
// released all the same.
func ExampleImportRecordBatch_malformed() {
	rec := trips()
	defer rec.Release()
	batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer batch.Release()
	var out cdevice.CArrowDeviceArray
	var outSchema cdata.CArrowSchema
	if err := cdevice.ExportRecordBatch(batch, &out, &outSchema); err != nil {
		fmt.Println(err)
		return
	}
	out.DeviceType = 0
	_, err = cdevice.ImportRecordBatch(&out, &outSchema)
	fmt.Println(err)
	fmt.Println("released:", out.Array.Release == 0)
	// Output:
	// cdevice: import: ArrowDeviceArray.device_type = 0, want a positive ArrowDeviceType; if it is an ArrowArray, ArrayFromPtr: invalid
	// released: true
}
