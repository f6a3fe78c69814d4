//go:build linux

package cdevice_test

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// Batches of an iterator, or of an arrow-go reader (WrapRecordReader), are exported as a C stream and imported
// again; no memory is copied. An error of the source reaches the consumer.
func ExampleExportRecordReader() {
	rec := trips()
	defer rec.Release()
	batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer batch.Release()
	r, err := cdevice.NewRecordReader(rec.Schema(), device.CPU, func(yield func(*cdevice.RecordBatch, error) bool) {
		if yield(batch, nil) {
			yield(nil, fmt.Errorf("no more trips: %w", context.DeadlineExceeded))
		}
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Release()

	// A consumer in another language passes the address of its own struct; see DeviceArrayStreamFromPtr, and
	// ArrayStreamFromPtr for libraries that know no device.
	var stream cdevice.CArrowDeviceArrayStream
	if err := cdevice.ExportRecordReader(r, &stream); err != nil {
		fmt.Println(err)
		return
	}
	in, err := cdevice.ImportRecordReader(&stream)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer in.Release()
	for in.Next() {
		fmt.Println(in.RecordBatch().NumRows(), "rows")
	}
	fmt.Println(in.Err())
	// Output:
	// 3 rows
	// cdevice: import: ArrowDeviceArrayStream.get_next: connection timed out (errno 110): no more trips: context deadline exceeded
}

// A reader is copied to a device batch by batch, the next one while this one is in use, and
// read on the host again.
func ExampleRecordReader_CopyTo() {
	gpu := openGPU()
	rec := trips()
	defer rec.Release()
	rdr, err := array.NewRecordReader(rec.Schema(), []arrow.RecordBatch{rec, rec})
	if err != nil {
		fmt.Println(err)
		return
	}
	src, err := cdevice.WrapRecordReader(rdr, device.CPUDevice())
	rdr.Release()
	if err != nil {
		fmt.Println(err)
		return
	}
	r, err := src.CopyTo(context.Background(), gpu)
	src.Release() // the copies hold it
	if err != nil {
		fmt.Println(err)
		return
	}
	host := r.HostReader(context.Background(), nil) // of a stream that was imported, as well
	r.Release()
	defer host.Release()
	for host.Next() {
		fmt.Println(r.DeviceType(), host.RecordBatch().Column(1))
	}
	fmt.Println(host.Err())
	// Output:
	// cuda [12.5 (null) 3]
	// cuda [12.5 (null) 3]
	// <nil>
}
