// Command share passes a batch to a second process, which reads it in the same memory. The second process is
// this program again.
//
//	go run ./examples/share                         # host memory, and a GPU's if there is one
//	go run ./cudasim/run go run ./examples/share    # on a simulated GPU
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/exec"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/share"
)

func main() {
	ctx := context.Background()
	if len(os.Args) > 1 {
		check(open(ctx, must(io.ReadAll(os.Stdin))))
		return
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil))
	b.Field(0).(*array.Int64Builder).AppendValues([]int64{1, 2, 3, 4}, nil)
	batch := must(cdevice.WrapRecordBatch(b.NewRecordBatch(), device.CPUDevice()))
	defer batch.Release()

	rec := must(batch.CopyToHost(ctx, must(share.NewAllocator()))) // memory that other processes can open
	defer rec.Release()
	check(pass(ctx, must(cdevice.WrapRecordBatch(rec, device.CPUDevice()))))

	gpu, err := cudaalloc.Open(0)
	if errors.Is(err, device.ErrNotSupported) {
		return // no driver, or no GPU
	}
	check(err)
	check(pass(ctx, must(batch.CopyTo(ctx, gpu.Shareable()))))
}

// pass shares the batch, which it takes over, with a second process, and returns when that has released it.
func pass(ctx context.Context, batch *cdevice.RecordBatch) error {
	defer batch.Release()
	shared, err := share.Share(ctx, batch)
	if err != nil {
		return err
	}
	second := exec.CommandContext(ctx, must(os.Executable()), "open")
	second.Stdin, second.Stdout, second.Stderr = bytes.NewReader(shared.Ticket()), os.Stdout, os.Stderr
	err = second.Run()
	return errors.Join(err, shared.Close(), shared.Wait(ctx)) // even if the second process was killed
}

// open is the second process.
func open(ctx context.Context, ticket share.Ticket) error {
	batch, err := share.Open(ctx, ticket)
	if err != nil {
		return err
	}
	defer batch.Release() // tells the owner
	read := batch.HostView
	if batch.DeviceID().Type == device.CUDA { // a kernel would read it where it is
		read = func(ctx context.Context) (arrow.RecordBatch, error) { return batch.CopyToHost(ctx, nil) }
	}
	rec, err := read(ctx)
	if err != nil {
		return err
	}
	defer rec.Release()
	sum := int64(0)
	for _, n := range rec.Column(0).(*array.Int64).Values() {
		sum += n
	}
	fmt.Println("sum", sum, "of", rec.NumRows(), "rows in the owner's memory on", batch.DeviceID())
	return nil
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}
