//go:build cgo

package main

import (
	"encoding/json"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/interop/cudaarray"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func init() {
	pyextension.Func("export_cuda_array", exportCUDAArray, pyextension.WithParams("array", "bitmap", "writable"))
}

// exportCUDAArray returns the CUDA array interface of an array, as JSON. bitmap exports the validity bitmap as the mask.
func exportCUDAArray(a *cdevice.Array, bitmap, writable bool) (string, error) {
	var opts []cudaarray.ExportOption
	if bitmap {
		opts = append(opts, cudaarray.WithBitmapMask())
	}
	if writable {
		opts = append(opts, cudaarray.WithWritable())
	}
	i, err := cudaarray.Export(a, opts...)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(i)
	return string(text), err
}
