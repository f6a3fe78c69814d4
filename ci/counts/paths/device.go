//go:build cgo && linux

package main

import (
	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/ci/counts/probe"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// onGPU are the paths of batches of 10 columns on a GPU. Each ends when the driver has nothing left to do.
func onGPU(gpu *cudaalloc.Device) []path {
	rec, out := numbers(10), probe.New[cdevice.CArrowDeviceArray]()
	batch := must(cdevice.CopyToDevice(background, rec, gpu))
	array, schema := lent(batch), rec.Schema()
	stream := must(gpu.NewStream())
	return []path{
		each("GPU: export again, release in C", many, func() {
			check(cdevice.ExportRecordBatch(batch, out, nil))
			probe.Release(out)
		}),
		each("GPU: import with an event, WaitOn, release", many, func() {
			*out = *array
			b := must(cdevice.ImportRecordBatchWithSchema(out, schema, cdevice.WithDevice(gpu)))
			check(b.WaitOn(stream))
			b.Release()
			check(gpu.Flush(background))
		}),
		each("GPU: copy to the device", few, func() {
			b := must(cdevice.CopyToDevice(background, rec, gpu))
			check(b.Synchronize(background))
			b.Release()
			check(gpu.Flush(background))
		}),
		each("GPU: copy to the host", few, func() { must(batch.CopyToHost(background, nil)).Release() }),
		each("GPU: copy to the device, export, release in C", few, func() {
			b := must(cdevice.CopyToDevice(background, rec, gpu))
			check(cdevice.ExportRecordBatch(b, out, nil))
			b.Release()
			probe.Release(out)
			check(gpu.Flush(background))
		}),
	}
}
