// Command roundtrip sends a stream of record batches to a GPU and reads it back. While one batch
// is in use, the next one is being copied.
//
//	go run ./cudasim/run go run ./examples/roundtrip    # or without cudasim/run, on a real GPU
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

func main() {
	gpu, err := cudaalloc.Open(0)
	if err != nil {
		log.Fatalf("%v; without a GPU: go run ./cudasim/run go run ./examples/roundtrip", err)
	}
	if err := roundTrip(context.Background(), threeBatches(), gpu); err != nil {
		log.Fatal(err)
	}
}

func roundTrip(ctx context.Context, batches array.RecordReader, gpu device.Device) error {
	defer batches.Release()
	here, err := cdevice.WrapRecordReader(batches, device.CPUDevice())
	if err != nil {
		return err
	}
	defer here.Release()
	there, err := here.CopyTo(ctx, gpu)
	if err != nil {
		return err
	}
	defer there.Release()
	back := there.HostReader(ctx, nil) // an array.RecordReader again
	defer back.Release()
	for back.Next() {
		fmt.Println(back.RecordBatch().NumRows(), "rows from", gpu.ID())
	}
	return back.Err()
}

// threeBatches is any reader of arrow-go: of a file, a table, a query.
func threeBatches() array.RecordReader {
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues([]int64{1, 2, 3, 4}, nil)
	rec := b.NewRecordBatch()
	defer rec.Release()
	batches, err := array.NewRecordReader(schema, []arrow.RecordBatch{rec, rec, rec})
	if err != nil {
		log.Fatal(err)
	}
	return batches
}
