package cdevice_test

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// A handler goes to a producer, which may be any library in the process; here it is ExportAsync. Batches are
// taken as they come, with their metadata. An error keeps its code, and both sides learn of it.
func ExampleImportAsync() {
	ctx := context.Background()
	rec := trips()
	defer rec.Release()
	trip, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer trip.Release()
	source, err := cdevice.NewRecordReader(rec.Schema(), device.CPU, func(yield func(*cdevice.RecordBatch, error) bool) {
		for day := range 2 {
			with := trip.WithMetadata(arrow.NewMetadata([]string{"day"}, []string{fmt.Sprint(day)}))
			ok := yield(with, nil)
			with.Release()
			if !ok {
				return
			}
		}
		yield(nil, fmt.Errorf("day 2: %w", arrow.ErrInvalid))
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer source.Release()

	handler := new(cdevice.CArrowAsyncDeviceStreamHandler) // or memory of C: AsyncDeviceStreamHandlerFromPtr
	stream, err := cdevice.ImportAsync(ctx, handler, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	source.WithMetadata(arrow.NewMetadata([]string{"days"}, []string{"3"}))
	export, err := cdevice.ExportAsync(ctx, source, handler)
	if err != nil { // the handler is released
		fmt.Println(err)
		return
	}
	defer stream.Close(ctx) // cancels, unless the stream has ended, and waits for the producer

	r, err := stream.Reader(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Release()
	fmt.Println(r.Schema().NumFields(), "fields on", r.DeviceType(), r.Metadata())
	for batch, err := range r.All() {
		if err != nil {
			fmt.Println(err)
			break
		}
		fmt.Println(batch.NumRows(), "rows", batch.Metadata())
	}
	fmt.Println(export.Wait(ctx))
	// Output:
	// 2 fields on cpu ["days": "3"]
	// 3 rows ["day": "0"]
	// 3 rows ["day": "1"]
	// cdevice: import: ArrowAsyncDeviceStreamHandler.on_error: invalid argument (errno 22): day 2: invalid
	// day 2: invalid
}
