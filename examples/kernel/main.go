// Command kernel makes a batch of memory that work on a stream fills, and uses the batch on another stream.
//
//	go run ./cudasim/run go run ./examples/kernel    # or without cudasim/run, on a real GPU
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

const rows = 4

var schema = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int32}}, nil)

func main() {
	gpu, err := cudaalloc.Open(0)
	if err != nil {
		log.Fatalf("%v; without a GPU: go run ./cudasim/run go run ./examples/kernel", err)
	}
	if err := run(context.Background(), gpu); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, gpu *cudaalloc.Device) error {
	writer, err := gpu.NewStream() // or gpu.WrapStream of another library's
	if err != nil {
		return err
	}
	defer writer.Close()
	reader, err := gpu.NewStream()
	if err != nil {
		return err
	}
	defer reader.Close()
	batch, err := compute(ctx, gpu, writer)
	if err != nil {
		return err
	}
	defer batch.Release() // does not wait: the memory is freed after the work that uses it
	if err := use(ctx, gpu, batch, reader); err != nil {
		return err
	}
	rec, err := batch.CopyToHost(ctx, nil) // waits for the kernel
	if err != nil {
		return err
	}
	defer rec.Release()
	fmt.Println(rec.Column(0))
	return nil
}

// compute returns what a kernel on s writes. It does not wait for the kernel.
func compute(ctx context.Context, gpu *cudaalloc.Device, s device.Stream) (*cdevice.RecordBatch, error) {
	m, err := gpu.Allocate(ctx, rows*4, s) // usable on s from now on
	if err != nil {
		return nil, err
	}
	if err := gpu.Memset(m.Ptr(), 1, m.Size(), s); err != nil { // the kernel
		return nil, errors.Join(err, m.Free(s)) // after the work on s
	}
	batch, err := cdevice.NewRecordBatch(gpu, schema, rows,
		[]cdevice.ArrayData{{Length: rows, Buffers: []device.Ptr{0, m.Ptr()}}}, // no nulls, values
		cdevice.Lifetime{Release: func() { _ = m.FreeAfter(nil) }})             // called when no work uses m any more
	if err != nil {
		return nil, err // the Lifetime frees m in this case too
	}
	defer batch.Release()
	return batch.WithEvent(s) // readers wait for the kernel
}

// use enqueues work on s that reads the batch. It does not wait either.
func use(ctx context.Context, gpu *cudaalloc.Device, batch *cdevice.RecordBatch, s device.Stream) error {
	scratch, err := gpu.Allocate(ctx, rows*4, s)
	if err != nil {
		return err
	}
	if err := batch.WaitOn(s); err != nil { // work on s comes after the kernel from now on
		return errors.Join(err, scratch.Free(s))
	}
	column := batch.Column(0)
	defer column.Release()
	values := device.Range{Dst: scratch.Ptr(), Src: column.Buffers()[1], Size: rows * 4}
	err = gpu.Copy([]device.Range{values}, s)                 // another kernel
	return errors.Join(err, batch.UsedOn(s), scratch.Free(s)) // both are freed after the work on s
}
