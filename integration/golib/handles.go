//go:build cgo

package main

// #cgo CFLAGS: -D_GNU_SOURCE
// #cgo LDFLAGS: -ldl
// #include <stdint.h>
import "C"

import (
	"fmt"
	"os"
	"sync"

	"github.com/arrowdevice/arrowdevice/pyextension"
)

func init() {
	pyextension.Func("keep", keepItem, pyextension.WithParams("item"))
	pyextension.Func("drop", drop, pyextension.WithParams("handle"))
}

// ended is the object of a handle, which ends with it.
type ended interface{ Release() }

// handles are the objects that Python knows by number. No number is used twice, so that an ended handle is an error and
// not another object.
var handles = struct {
	sync.Mutex
	last uint64
	live map[uint64]ended
}{live: map[uint64]ended{}}

// put takes ownership of an object, which its handle ends.
func put(o ended) uint64 {
	handles.Lock()
	defer handles.Unlock()
	handles.last++
	handles.live[handles.last] = o
	return handles.last
}

// find borrows the object of a handle.
func find[T any](handle uint64) (v T, err error) {
	handles.Lock()
	defer handles.Unlock()
	o, ok := handles.live[handle]
	if !ok {
		return v, fmt.Errorf("golib: handle %d is not alive", handle)
	}
	if v, ok = o.(T); !ok {
		return v, fmt.Errorf("golib: handle %d is a %T", handle, o)
	}
	return v, nil
}

// drop ends a handle and its object, on the thread of a goroutine, which Python does not know.
func drop(handle uint64) error {
	o, err := find[ended](handle)
	if err != nil {
		return err
	}
	handles.Lock()
	delete(handles.live, handle)
	handles.Unlock()
	o.Release()
	return nil
}

// golib_drop is drop on the thread of the caller.
//
//export golib_drop
func golib_drop(handle C.uint64_t) {
	if err := drop(uint64(handle)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// keepItem returns a handle of an array or a batch, for sources and for releases by drop.
func keepItem(v any) (uint64, error) {
	i, err := itemOf(v)
	if err != nil {
		return 0, err
	}
	i.Retain()
	return put(i), nil
}
