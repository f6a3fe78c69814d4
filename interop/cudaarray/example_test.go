//go:build linux

package cudaarray_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/interop/cudaarray"
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

// column copies a column of pairs to the GPU.
func column(ctx context.Context, gpu device.Device) *cdevice.Array {
	pairs, _, err := array.FromJSON(memory.DefaultAllocator, arrow.FixedSizeListOf(2, arrow.PrimitiveTypes.Float32), strings.NewReader(`[[1,2],[3,4],[5,6]]`))
	if err != nil {
		log.Fatal(err)
	}
	defer pairs.Release()
	host, err := cdevice.WrapArray(pairs, device.CPUDevice())
	if err != nil {
		log.Fatal(err)
	}
	defer host.Release()
	there, err := host.CopyTo(ctx, gpu) // returns when the copy is enqueued
	if err != nil {
		log.Fatal(err)
	}
	return there
}

// A column goes to a Python library and comes back.
func Example() {
	ctx := context.Background()
	gpu := openGPU()
	a := column(ctx, gpu)
	defer a.Release() // when the consumer no longer uses the memory

	// The consumer waits for the legacy default stream, which waits for the copy.
	i, err := cudaarray.Export(a, cudaarray.WithStream(gpu.Legacy()))
	if err != nil {
		log.Fatal(err)
	}
	text, err := json.Marshal(i) // what Python makes its dict of
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(i.Shape, i.TypeStr, *i.Stream)

	var from cudaarray.Interface // what a Python library offers
	if err := json.Unmarshal(text, &from); err != nil {
		log.Fatal(err)
	}
	back, err := cudaarray.Import(from, cdevice.Lifetime{Release: func() { /* drop the reference to the Python object */ }}, cudaarray.WithDevice(gpu))
	if err != nil {
		log.Fatal(err)
	}
	defer back.Release()
	values, err := back.CopyToHost(ctx, nil) // waits for the producer's stream
	if err != nil {
		log.Fatal(err)
	}
	defer values.Release()
	fmt.Println(values)
	// Output:
	// [3 2] <f4 1
	// [[1 2] [3 4] [5 6]]
}
