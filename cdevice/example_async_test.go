package cdevice_test

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// parts is a reader of the rows of trips, one batch each.
func parts() (*cdevice.RecordReader, error) {
	rec := trips()
	defer rec.Release()
	batch, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	if err != nil {
		return nil, err
	}
	return cdevice.NewRecordReader(batch.Schema(), device.CPU, func(yield func(*cdevice.RecordBatch, error) bool) {
		defer batch.Release()
		for i := range batch.NumRows() {
			part, err := batch.Slice(i, i+1)
			if err != nil {
				yield(nil, err)
				return
			}
			ok := yield(part, nil)
			part.Release()
			if !ok {
				return
			}
		}
	})
}

// A handler goes to a producer, which may be any library in the process; here it is
// ExportAsync. Batches are taken as they come.
func ExampleImportAsync() {
	ctx := context.Background()
	source, err := parts()
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
	if _, err := cdevice.ExportAsync(ctx, source, handler); err != nil { // which has released the handler
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
	fmt.Println(r.Schema().NumFields(), "fields on", r.DeviceType())
	for batch, err := range r.All() {
		if err != nil {
			fmt.Println(err)
			return
		}
		rec, err := batch.CopyToHost(ctx, nil)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(rec.Column(0), rec.Column(1))
		rec.Release()
	}
	// Output:
	// 2 fields on cpu
	// ["Oslo"] [12.5]
	// ["Lima"] [(null)]
	// ["Pune"] [3]
}

// The producer's metadata of the stream and of each batch is passed on, and an error keeps its
// code.
func ExampleExportAsync() {
	ctx := context.Background()
	source, err := parts()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer source.Release()
	r, err := cdevice.NewRecordReader(source.Schema(), source.DeviceType(), func(yield func(*cdevice.RecordBatch, error) bool) {
		n := 0
		for batch, err := range source.All() {
			if n++; n == 3 {
				err = fmt.Errorf("row %d: %w", n, arrow.ErrInvalid)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			with := batch.WithMetadata(arrow.NewMetadata([]string{"row"}, []string{fmt.Sprint(n)}))
			ok := yield(with, nil)
			with.Release()
			if !ok {
				return
			}
		}
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Release()

	handler := new(cdevice.CArrowAsyncDeviceStreamHandler) // another library's, usually
	stream, err := cdevice.ImportAsync(ctx, handler, 0)
	if err != nil {
		fmt.Println(err)
		return
	}
	rows := arrow.NewMetadata([]string{"rows"}, []string{"3"})
	if _, err := cdevice.ExportAsync(ctx, r.WithMetadata(rows), handler); err != nil {
		fmt.Println(err)
		return
	}
	defer stream.Close(ctx)
	in, err := stream.Reader(ctx)
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
		fmt.Println(in.Metadata(), batch.Metadata())
	}
	// Output:
	// ["rows": "3"] ["row": "1"]
	// ["rows": "3"] ["row": "2"]
	// cdevice: import: ArrowAsyncDeviceStreamHandler.on_error: invalid argument (errno 22): row 3: invalid
}
