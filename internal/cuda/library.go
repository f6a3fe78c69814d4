package cuda

// #include <stdlib.h>
// #include "driver.h"
import "C"

import (
	"path/filepath"
	"unsafe"
)

// Library describes a library that is or claims to be a driver. Nothing of it was called.
type Library struct {
	Path      string // as it was named
	File      string // the file that the loader found, links resolved; "" if the system cannot say
	Functions int    // how many functions this package knows
	Needed    []string
	Optional  []string
}

// Inspect loads the library at path ("": see [DefaultPath]) and lists the functions that it lacks,
// as the manual names them: those without which no device can be opened, and the others. The error
// of a library that cannot be loaded is that of [Open].
func Inspect(path string) (*Library, error) {
	if path == "" {
		path = DefaultPath()
	}
	cPath := C.CString(path)
	defer C.free(unsafe.Pointer(cPath))
	var found C.cdevice_v0_cuda_library
	text := make([]byte, 1024)
	if reason := C.cdevice_v0_cuda_inspect(cPath, &found, (*C.char)(unsafe.Pointer(&text[0])), C.size_t(len(text))); reason != nil {
		return nil, notLoaded(path, C.GoString(reason))
	}
	l := &Library{Path: path, File: C.GoString(&found.file[0]), Functions: len(found.absent)}
	if file, err := filepath.EvalSymlinks(l.File); err == nil && l.File != "" {
		l.File = file
	}
	for i, absent := range found.absent {
		function := C.cdevice_v0_cuda_functions[i]
		switch {
		case absent == 0:
		case function.needed != 0:
			l.Needed = append(l.Needed, C.GoString(function.name))
		default:
			l.Optional = append(l.Optional, C.GoString(function.name))
		}
	}
	return l, nil
}

// Has reports whether the library defines symbol, which it does not call.
func (l *Library) Has(symbol string) bool {
	path, name := C.CString(l.Path), C.CString(symbol)
	defer C.free(unsafe.Pointer(path))
	defer C.free(unsafe.Pointer(name))
	return C.cdevice_v0_cuda_has(path, name) != 0
}
