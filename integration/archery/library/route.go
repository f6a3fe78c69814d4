//go:build cdata_integration

package main

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// way is the way of a batch between a JSON file and plain structs. Archery makes one call
// at a time, so nothing guards it.
type way struct {
	sliced bool              // an exported batch is a slice of a longer one
	gpu    *cudaalloc.Device // nil: batches stay in the memory of the CPU
}

var route way

// opened is the GPU, once a route has led through it.
var opened *cudaalloc.Device

func setRoute(sliced, gpu bool) (err error) {
	if gpu && opened == nil {
		if opened, err = cudaalloc.Open(0); err != nil {
			return err
		}
	}
	route = way{sliced: sliced}
	if gpu {
		route.gpu = opened
	}
	return nil
}

// through returns the batch after its way: copied to the GPU, exported and imported there as structs
// ArrowDeviceArray and ArrowSchema, and copied back; or the batch itself. It takes ownership of
// batch, and the result is owned by the caller.
func (w way) through(ctx context.Context, batch *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
	if w.gpu == nil {
		return batch, nil
	}
	defer batch.Release()
	there, err := batch.CopyTo(ctx, w.gpu)
	if err != nil {
		return nil, err
	}
	imported, err := reimported(there)
	there.Release() // the exported struct holds the memory
	if err != nil {
		return nil, err
	}
	defer imported.Release()
	return imported.CopyTo(ctx, device.CPUDevice())
}

// reimported exports a batch to C structs and imports them.
func reimported(batch *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
	out, schema := new(cdevice.CArrowDeviceArray), new(cdata.CArrowSchema)
	if err := cdevice.ExportRecordBatch(batch, out, schema); err != nil {
		return nil, err
	}
	return cdevice.ImportRecordBatch(out, schema)
}
