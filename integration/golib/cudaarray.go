package main

// #include <stdint.h>
import "C"

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/interop/cudaarray"
)

func arrayOf(handle C.uint64_t) (*cdevice.Array, error) {
	t, err := get(handle)
	if err != nil {
		return nil, err
	}
	a, ok := t.(anArray)
	if !ok {
		return nil, fmt.Errorf("golib: handle %d is not an array", handle)
	}
	return a.Array, nil
}

// golib_export_cuda_array returns the CUDA array interface of an array. stream, where it is not 0, is
// that of the consumers; bitmap exports the validity bitmap as the mask.
//
//export golib_export_cuda_array
func golib_export_cuda_array(handle C.uint64_t, stream C.uintptr_t, bitmap, writable C.int, out **C.char) *C.char {
	return answer(out, func() (any, error) {
		a, err := arrayOf(handle)
		if err != nil {
			return nil, err
		}
		var opts []cudaarray.ExportOption
		if stream != 0 {
			dev, err := a.Device()
			if err != nil {
				return nil, err
			}
			s, err := dev.WrapStream(uintptr(stream))
			if err != nil {
				return nil, err
			}
			opts = append(opts, cudaarray.WithStream(s))
		}
		if bitmap != 0 {
			opts = append(opts, cudaarray.WithBitmapMask())
		}
		if writable != 0 {
			opts = append(opts, cudaarray.WithWritable())
		}
		return cudaarray.Export(a, opts...)
	})
}

// cudaArrayReleases counts the releases of imported CUDA arrays by their tokens.
var cudaArrayReleases = struct {
	sync.Mutex
	count map[uint64]int
}{count: map[uint64]int{}}

// golib_import_cuda_array takes the memory of a CUDA array interface, which is given as JSON.
// golib_cuda_array_releases returns how often the memory of a token was released.
//
//export golib_import_cuda_array
func golib_import_cuda_array(text *C.char, token C.uint64_t, out *C.uint64_t) *C.char {
	return create(out, func() (thing, error) {
		release := func() {
			cudaArrayReleases.Lock()
			defer cudaArrayReleases.Unlock()
			cudaArrayReleases.count[uint64(token)]++
		}
		var i cudaarray.Interface
		if err := json.Unmarshal([]byte(C.GoString(text)), &i); err != nil {
			release()
			return nil, err
		}
		a, err := cudaarray.Import(i, cdevice.Lifetime{Release: release})
		if err != nil {
			return nil, err
		}
		return anArray{a}, nil
	})
}

//export golib_cuda_array_releases
func golib_cuda_array_releases(token C.uint64_t, out **C.char) *C.char {
	return answer(out, func() (any, error) {
		cudaArrayReleases.Lock()
		defer cudaArrayReleases.Unlock()
		return cudaArrayReleases.count[uint64(token)], nil
	})
}
