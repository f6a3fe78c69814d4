//go:build cgo && unix

package pyextension

import (
	"sync"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/interop/cudaarray"
	"github.com/arrowdevice/arrowdevice/interop/dlpack"
	"github.com/arrowdevice/arrowdevice/pyextension/internal/capi"
)

// cudaArray imports the memory of a __cuda_array_interface__. The reference to its owner goes to
// the array. It runs on the thread of the caller, before the call: the stream may be the per-thread
// default stream of it.
func (s *source) cudaArray(d dict) (*cdevice.Array, error) {
	i, err := readInterface(d)
	if err != nil {
		return nil, about("__cuda_array_interface__", err)
	}
	owner := s.owner
	s.owner = 0
	return cudaarray.Import(*i, cdevice.Lifetime{Release: sync.OnceFunc(func() { capi.DropPythonObject(owner) })})
}

// readInterface reads the dict of a __cuda_array_interface__.
func readInterface(d dict) (*cudaarray.Interface, error) {
	i := &cudaarray.Interface{}
	var err error
	if i.Shape, err = integers(d, "shape"); err != nil {
		return nil, err
	}
	if i.Strides, err = integers(d, "strides"); err != nil {
		return nil, err
	}
	var ok bool
	if i.TypeStr, ok = d.get("typestr").(string); !ok {
		return nil, wrongEntry("typestr", "str", d.get("typestr"))
	}
	version, ok := d.get("version").(int64)
	if !ok {
		return nil, wrongEntry("version", "int", d.get("version"))
	}
	i.Version = int(version)
	pair, _ := d.get("data").([]any)
	if len(pair) != 2 {
		return nil, wrongEntry("data", "an address and a bool", d.get("data"))
	}
	address, isInt := pair[0].(int64)
	if pair[0] != nil && !isInt {
		return nil, wrongEntry("data", "an address and a bool", d.get("data"))
	}
	readOnly, isBool := pair[1].(bool)
	if !isBool {
		return nil, wrongEntry("data", "an address and a bool", d.get("data"))
	}
	i.Data = cudaarray.Data{Ptr: device.Ptr(address), ReadOnly: readOnly}
	if v := d.get("stream"); v != nil {
		n, ok := v.(int64)
		if !ok {
			return nil, wrongEntry("stream", "int or None", v)
		}
		i.Stream = &n
	}
	if v := d.get("mask"); v != nil {
		m, ok := v.(dict)
		if !ok {
			return nil, wrongEntry("mask", "an object with a __cuda_array_interface__", v)
		}
		if i.Mask, err = readInterface(m); err != nil {
			return nil, about("mask", err)
		}
	}
	return i, nil
}

// integers returns the tuple of ints under a key; nil for None.
func integers(d dict, key string) ([]int64, error) {
	v := d.get(key)
	if v == nil {
		return nil, nil
	}
	list, ok := v.([]any)
	if !ok {
		return nil, wrongEntry(key, "a tuple of int", v)
	}
	all := make([]int64, len(list))
	for i, e := range list {
		if all[i], ok = e.(int64); !ok {
			return nil, wrongEntry(key, "a tuple of int", v)
		}
	}
	return all, nil
}

func wrongEntry(key, want string, got any) error {
	return typeErrorf("%q: %s is wanted, not %s", key, want, pythonType(got))
}

// exportCUDAArray returns the dict of an array's __cuda_array_interface__. It runs on the thread of
// the consumer. A pending event is ordered before the stream of the call, None being the legacy
// default stream.
func exportCUDAArray(in *invocation) (any, error) {
	a, err := in.theArray()
	if err != nil {
		return nil, err
	}
	i, err := cudaarray.Export(a)
	if err != nil || len(in.args) > 1 && in.args[1] != nil {
		i, err = in.exportOnStream(a)
	}
	if err != nil {
		return nil, err
	}
	return dict{
		{"shape", list(i.Shape)}, {"typestr", i.TypeStr}, {"data", []any{int64(i.Data.Ptr), i.Data.ReadOnly}},
		{"version", int64(i.Version)}, {"strides", optionalList(i.Strides)}, {"stream", optional(i.Stream)},
	}, nil
}

func (in *invocation) exportOnStream(a *cdevice.Array) (cudaarray.Interface, error) {
	number := int64(cudaarray.LegacyStream)
	if len(in.args) > 1 && in.args[1] != nil {
		n, err := argument[int64](in, 1)
		if err != nil {
			return cudaarray.Interface{}, err
		}
		number = n
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

func list(numbers []int64) []any {
	all := make([]any, len(numbers))
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
