//go:build gorgonia

package gorgonia_test

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"gorgonia.org/cu"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc/gorgonia"
)

// A program that computes with gorgonia hands its result out as an Arrow record batch,
// without copying it.
func Example() {
	gpu, err := gorgonia.Open(0)
	if err != nil {
		fmt.Println(err)
		return
	}
	batch, err := weights(gpu, []float32{0.5, 1.5, 2.5})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer batch.Release() // the last user frees the memory, by cu.MemFree

	// cdevice.ExportRecordBatch hands it to another library; here the host reads it.
	rec, err := batch.CopyToHost(context.Background(), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rec.Release()
	fmt.Println(batch.DeviceID(), rec.Column(0))
	// Output: cuda:0 [0.5 1.5 2.5]
}

// weights is a batch of memory that gorgonia allocated and filled.
func weights(gpu *cudaalloc.Device, values []float32) (batch *cdevice.RecordBatch, err error) {
	err = gorgonia.Do(gpu, func() error {
		rows := int64(len(values))
		mem, err := cu.MemAlloc(4 * rows)
		if err != nil {
			return err
		}
		if err := cu.MemcpyHtoD(mem, unsafe.Pointer(&values[0]), 4*rows); err != nil {
			return errors.Join(err, cu.MemFree(mem))
		}
		// Kernels go here, on the stream that is passed to Owner.
		owner, err := gorgonia.Owner(gpu, cu.NoStream, cu.MemFree, mem)
		if err != nil {
			return err // mem is freed: Owner takes it even if it returns an error
		}
		schema := arrow.NewSchema([]arrow.Field{{Name: "weight", Type: arrow.PrimitiveTypes.Float32}}, nil)
		batch, err = cdevice.NewRecordBatch(gpu, schema, rows, []cdevice.ArrayData{gorgonia.Column(mem, rows)}, owner)
		return err
	})
	return batch, err
}
