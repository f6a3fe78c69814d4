//go:build cgo && unix

package pyextension

import (
	"sync"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/interop/cudaarray"
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
