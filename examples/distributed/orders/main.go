// Command orders is the step of a Dask graph: it sums up one partition of orders by country and day.
package main

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func main() {} // Python calls the functions

func init() {
	pyextension.Func("summarize", summarize,
		pyextension.WithParams("orders", "gpu"), pyextension.WithDefault("gpu", nil),
		pyextension.WithDoc("The orders of a stream, summed up by country and day. With gpu=0, they are copied to that GPU and back."))
}

// summarize reads one batch after the other. The result is owned by the caller.
func summarize(ctx context.Context, orders *cdevice.RecordReader, gpu *int64) (arrow.RecordBatch, error) {
	if gpu != nil {
		device, err := cudaalloc.Open(*gpu)
		if err != nil {
			return nil, err
		}
		there, err := orders.CopyTo(ctx, device)
		if err != nil {
			return nil, err
		}
		defer there.Release()
		orders = there
	}
	batches := orders.HostReader(ctx, nil) // views of memory of the CPU, copies of memory of a GPU
	defer batches.Release()
	all := summary{}
	for rows := int64(0); batches.Next(); rows += batches.RecordBatch().NumRows() {
		if err := all.add(batches.RecordBatch(), rows); err != nil {
			return nil, err
		}
	}
	if err := batches.Err(); err != nil {
		return nil, err
	}
	return all.batch(), nil
}
