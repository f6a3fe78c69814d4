// Command columns takes a column of another GPU library in, and gives it out again. The other
// library is library.go, so that the program runs without one:
//
//	go run ./cudasim/run go run ./examples/columns    # or without cudasim/run, on a real GPU
package main

import (
	"context"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// fromAddress makes an array of memory that work on a stream is filling: data and stream of
// __cuda_array_interface__ (Numba, CuPy), data_ptr() and cuda_stream of PyTorch.
func fromAddress(gpu *cudaalloc.Device, data device.Ptr, rows int64, stream device.Stream, free func()) (*cdevice.Array, error) {
	a, err := cdevice.NewArray(gpu, arrow.PrimitiveTypes.Float64,
		cdevice.ArrayData{Length: rows, Buffers: []device.Ptr{0, data}}, cdevice.Lifetime{Release: free})
	if err != nil {
		return nil, err
	}
	defer a.Release()
	return a.WithEvent(stream) // readers wait for the work on the stream
}

// toAddress gives the values to a library that uses them on a stream of its own.
func toAddress(a *cdevice.Array, stream device.Stream) (device.Ptr, error) {
	if err := a.WaitOn(stream); err != nil { // its work comes after the values
		return 0, err
	}
	return a.Buffers()[1], a.UsedOn(stream) // and they are freed after its work
}

// toCuDF fills the structs that pylibcudf's Column.from_arrow takes.
func toCuDF(ctx context.Context, a *cdevice.Array, out, outSchema uintptr) error {
	fitted, err := a.ForCuDF(ctx)
	if err != nil {
		return err
	}
	defer fitted.Release()
	return cdevice.ExportArray(fitted, cdevice.DeviceArrayFromPtr(out), cdevice.SchemaFromPtr(outSchema))
}

// fromCuDF takes the structs of pylibcudf's Column.__arrow_c_device_array__.
func fromCuDF(in, schema uintptr) (*cdevice.Array, error) {
	return cdevice.ImportArray(cdevice.DeviceArrayFromPtr(in), cdevice.SchemaFromPtr(schema), cdevice.WithGIL())
}
