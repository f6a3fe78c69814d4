//go:build linux && cgo

package cudasim

/*
#cgo LDFLAGS: -ldl
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

// All functions of the library take integers and pointers and return one or none, so that one type
// fits: functions ignore surplus arguments, and the caller takes the valid bits of the result.
static uint64_t cudasim_go_call(uintptr_t function, const uint64_t *a) {
	typedef uint64_t (*any)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
	return ((any)function)(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
}

static uintptr_t cudasim_go_symbol(void *library, const char *name) { return (uintptr_t)dlsym(library, name); }
static const char *cudasim_go_string(uint64_t address) { return (const char *)(uintptr_t)address; }
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"
)

// loaded is a handle of dlopen. It is never closed: threads of the library's streams may still run
// its code.
type loaded struct{ handle unsafe.Pointer }

func open(path string) (loaded, error) {
	name := C.CString(path)
	defer C.free(unsafe.Pointer(name))
	runtime.LockOSThread() // dlerror knows only what failed on its own thread
	defer runtime.UnlockOSThread()
	// Not RTLD_GLOBAL: other libraries of this process that need a libcuda.so.1 must not be bound
	// to one machine of many.
	handle := C.dlopen(name, C.RTLD_NOW|C.RTLD_LOCAL)
	if handle == nil {
		return loaded{}, errors.New(C.GoString(C.dlerror()))
	}
	return loaded{handle}, nil
}

// symbol returns the address of an exported function, 0 if there is none.
func (l loaded) symbol(name string) uintptr {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	return uintptr(C.cudasim_go_symbol(l.handle, c))
}

// call calls a function of the library, which must not keep pointers to Go
// memory. Pointers are converted in the argument list, as for syscall.Syscall.
//
//go:uintptrescapes
func (s *Sim) call(function string, args ...uintptr) uint64 {
	f := s.lib.symbol(function)
	if f == 0 {
		panic(fmt.Sprintf("cudasim: %s has no function %s", s.path, function))
	}
	var all [8]C.uint64_t
	for i, a := range args {
		all[i] = C.uint64_t(a)
	}
	return uint64(C.cudasim_go_call(C.uintptr_t(f), &all[0]))
}

// stringAt copies a C string of the library; "" for NULL.
func stringAt(address uintptr) string {
	return C.GoString(C.cudasim_go_string(C.uint64_t(address)))
}
