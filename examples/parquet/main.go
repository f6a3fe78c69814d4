// Command parquet reads a Parquet file into pinned memory, from which a GPU copies at the speed
// of the bus, and copies its columns to the GPU:
//
//	go run ./cudasim/run go run ./examples/parquet FILE    # or without cudasim/run, on a real GPU
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/hostpinned"
)

func main() {
	ctx := context.Background()
	gpu, err := cudaalloc.Open(0)
	if err != nil {
		log.Fatalf("%v; without a GPU: go run ./cudasim/run go run ./examples/parquet FILE", err)
	}
	mem := must(hostpinned.NewAllocator(gpu, hostpinned.WithLimit(1<<30), hostpinned.WithFallback(nil))) // at most 1 GiB is pinned

	f := must(file.OpenParquetFile(os.Args[1], false))
	defer f.Close()
	columns := must(pqarrow.NewFileReader(f, pqarrow.ArrowReadProperties{BatchSize: 64 << 10}, mem))
	rows := must(columns.GetRecordReader(ctx, nil, nil))
	defer rows.Release()

	here := must(cdevice.WrapRecordReader(rows, device.CPUDevice()))
	defer here.Release()
	there := must(here.CopyTo(ctx, gpu)) // straight from the memory that the file was read into
	defer there.Release()
	for batch, err := range there.All() {
		fmt.Println(must(batch, err).NumRows(), "rows on", batch.DeviceID())
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}
