//go:build linux

package cdevice_test

import (
	"context"
	"fmt"
	"log"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// openGPU opens the first GPU; for this example, of a simulated driver. A program calls
// cudaalloc.Open(0).
func openGPU() *cudaalloc.Device {
	driver, err := cudasim.Build()
	if err != nil {
		log.Fatal(err)
	}
	gpu, err := cudaalloc.Open(0, cudaalloc.WithDriver(driver))
	if err != nil {
		log.Fatal(err)
	}
	return gpu
}

// A record batch goes to the GPU; a part of it comes back.
func ExampleCopyToDevice() {
	ctx := context.Background()
	gpu := openGPU()

	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
		{Name: "city", Type: arrow.BinaryTypes.String},
		{Name: "degrees", Type: arrow.PrimitiveTypes.Float64, Nullable: true},
	}, nil))
	defer b.Release()
	b.Field(0).(*array.StringBuilder).AppendValues([]string{"Accra", "Oslo", "Lima"}, nil)
	b.Field(1).(*array.Float64Builder).AppendValues([]float64{29.5, 0, 18.25}, []bool{true, false, true})
	rec := b.NewRecordBatch()
	defer rec.Release()

	batch, err := cdevice.CopyToDevice(ctx, rec, gpu) // returns when the copy is enqueued
	if err != nil {
		log.Fatal(err)
	}
	defer batch.Release()
	fmt.Println(batch.DeviceID(), batch.NumRows(), "rows")

	part, err := batch.Slice(1, 3) // touches no memory
	if err != nil {
		log.Fatal(err)
	}
	defer part.Release()
	back, err := part.CopyToHost(ctx, nil) // waits for the copy
	if err != nil {
		log.Fatal(err)
	}
	defer back.Release()
	fmt.Println(back.Column(0), back.Column(1))
	// Output:
	// cuda:0 3 rows
	// ["Oslo" "Lima"] [(null) 18.25]
}
