package main

import (
	"context"
	"fmt"
	"log"
	"runtime"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// What stands for another GPU library: memory that its work on a stream of its own fills, and
// work that reads an address.

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	gpu, err := cudaalloc.Open(0)
	if err != nil {
		return fmt.Errorf("%w; without a GPU: go run ./cudasim/run go run ./examples/columns", err)
	}
	stream, err := gpu.NewStream()
	if err != nil {
		return err
	}
	defer stream.Close()
	const size = 3 * 8
	theirs, err := gpu.Allocate(ctx, size, stream)
	if err != nil {
		return err
	}
	var pins runtime.Pinner
	defer pins.Unpin()
	values := []float64{1, 2, 3}
	pins.Pin(&values[0])
	source := device.Range{Dst: theirs.Ptr(), Src: device.Ptr(uintptr(unsafe.Pointer(&values[0]))), Size: size}
	filled, err := gpu.Upload(ctx, []device.Range{source}, stream)
	if err != nil {
		return err
	}
	defer filled.Close()
	column, err := fromAddress(gpu, theirs.Ptr(), 3, stream, func() { _ = theirs.FreeAfter(nil) })
	if err != nil {
		return err
	}
	defer column.Release()

	// To cuDF and back: both sides are ours here.
	out, schema := new(cdevice.CArrowDeviceArray), new([9]uintptr) // struct ArrowDeviceArray, struct ArrowSchema
	pins.Pin(out)
	pins.Pin(schema)
	if err := toCuDF(ctx, column, uintptr(unsafe.Pointer(out)), uintptr(unsafe.Pointer(schema))); err != nil {
		return err
	}
	back, err := fromCuDF(uintptr(unsafe.Pointer(out)), uintptr(unsafe.Pointer(schema)))
	if err != nil {
		return err
	}
	defer back.Release()

	address, err := toAddress(back, stream)
	if err != nil {
		return err
	}
	copied, err := gpu.AllocateHost(ctx, size)
	if err != nil {
		return err
	}
	defer copied.FreeAfter(nil)
	if err := gpu.Copy([]device.Range{{Dst: copied.Ptr(), Src: address, Size: size}}, stream); err != nil {
		return err
	}
	if err := stream.Synchronize(ctx); err != nil {
		return err
	}
	host, err := back.CopyToHost(ctx, nil)
	if err != nil {
		return err
	}
	defer host.Release()
	fmt.Println(host.(*array.Float64).Float64Values(), "at an address:", unsafe.Slice(*(**float64)(unsafe.Pointer(&[]device.Ptr{copied.Ptr()}[0])), 3))
	return nil
}
