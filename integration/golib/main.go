// Command golib is this module as a C shared library for the tests in
// ../python: Go and PyArrow in one process.
//
// Arrays, record batches and streams of them are known to Python by handles.
// Every function returns NULL when it worked, and otherwise the text of the error,
// which the caller frees with golib_free; a panic comes back the same way. Results
// are written to the last argument, and text in them is JSON that the caller frees.
package main

// #cgo CFLAGS: -D_GNU_SOURCE
// #cgo LDFLAGS: -ldl
// #include <stdint.h>
// #include <stdlib.h>
import "C"

import (
	"encoding/json"
	"fmt"
	"runtime/debug"
	"unsafe"
)

func main() {}

// guard runs the body of an exported function. Neither errors nor panics leave
// Go in another way than as the returned text.
func guard(body func() error) (text *C.char) {
	defer func() {
		if v := recover(); v != nil {
			text = C.CString(fmt.Sprintf("panic: %v\n%s", v, debug.Stack()))
		}
	}()
	if err := body(); err != nil {
		return C.CString(err.Error())
	}
	return nil
}

// create is guard for functions that make an object and return its handle.
func create[T object](out *C.uint64_t, body func() (T, error)) *C.char {
	return guard(func() error {
		o, err := body()
		if err != nil {
			return err
		}
		*out = C.uint64_t(put(o))
		return nil
	})
}

// answer is guard for functions that return JSON.
func answer(out **C.char, body func() (any, error)) *C.char {
	return guard(func() error {
		v, err := body()
		if err != nil {
			return err
		}
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		*out = C.CString(string(text))
		return nil
	})
}

//export golib_free
func golib_free(text *C.char) { C.free(unsafe.Pointer(text)) }
