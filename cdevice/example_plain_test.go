package cdevice_test

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// A stream for libraries that know no device: polars, DuckDB and pandas take one through
// __arrow_c_stream__.
func ExampleExportRecordReader_cStreamInterface() {
	rdr := days(2)
	r, err := cdevice.WrapRecordReader(rdr, device.CPUDevice())
	rdr.Release()
	if err != nil {
		fmt.Println(err)
		return
	}
	// A consumer in another language passes the address of its own struct; see
	// ArrayStreamFromPtr.
	var stream cdata.CArrowArrayStream
	err = cdevice.ExportRecordReader(r, &stream)
	r.Release() // the stream holds it on its own
	if err != nil {
		fmt.Println(err)
		return
	}

	in, err := cdevice.ImportRecordReader(&stream)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer in.Release()
	for batch, err := range in.All() {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(in.DeviceType(), batch.NumRows(), "rows")
	}
	// Output:
	// cpu 3 rows
	// cpu 3 rows
}

// One batch, for a consumer that calls __arrow_c_array__.
func ExampleExportRecordBatch_cDataInterface() {
	rec := trips()
	defer rec.Release()
	batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer batch.Release()
	part, err := batch.Slice(1, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer part.Release()
	var array cdata.CArrowArray
	var schema cdata.CArrowSchema
	if err := cdevice.ExportRecordBatch(part, &array, &schema); err != nil {
		fmt.Println(err)
		return
	}
	back, err := cdevice.ImportRecordBatch(&array, &schema)
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
	fmt.Println(view.Column(1))
	// Output:
	// [(null) 3]
}
