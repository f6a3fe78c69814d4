//go:build cgo && unix

package pyextension

import (
	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/interop/cudaarray"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
)

// exportCUDAArray returns the dict of an array's __cuda_array_interface__. It runs on the thread of
// the consumer. A pending event is ordered before the stream of the call, None being the legacy
// default stream.
func exportCUDAArray(in *invocation, a *cdevice.Array) (any, error) {
	i, err := cudaarray.Export(a)
	if err != nil || len(in.args) > 1 && in.args[1] != nil {
		i, err = in.exportOnStream(a)
	}
	if err != nil {
		return nil, err
	}
	return dict{
		{"shape", list(i.Shape)}, {"typestr", i.TypeStr}, {"data", tuple{int64(i.Data.Ptr), i.Data.ReadOnly}},
		{"version", int64(i.Version)}, {"strides", optionalList(i.Strides)}, {"stream", optional(i.Stream)},
	}, nil
}

func (in *invocation) exportOnStream(a *cdevice.Array) (cudaarray.Interface, error) {
	number := int64(cudaarray.LegacyStream)
	if len(in.args) > 1 && in.args[1] != nil {
		var err error
		if number, err = argument[int64](in, 1); err != nil {
			return cudaarray.Interface{}, err
		}
	}
	dev, err := a.Device()
	if err != nil {
		return cudaarray.Interface{}, err
	}
	s, _, err := dlpack.StreamOf(dev, number) // the numbers are the same
	if err != nil {
		return cudaarray.Interface{}, err
	}
	return cudaarray.Export(a, cudaarray.WithStream(s))
}

func list(numbers []int64) tuple {
	all := make(tuple, len(numbers))
	for i, n := range numbers {
		all[i] = n
	}
	return all
}

func optionalList(numbers []int64) any {
	if numbers == nil {
		return nil
	}
	return list(numbers)
}

func optional(n *int64) any {
	if n == nil {
		return nil
	}
	return *n
}
