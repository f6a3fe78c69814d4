package main

import "C"

import (
	"fmt"
	"os"
	"runtime/debug"
)

// golib_crash_output has the traceback of a crash written to a descriptor, beside standard
// error, which may be captured. It takes the descriptor.
//
//export golib_crash_output
func golib_crash_output(descriptor C.int) *C.char {
	return guard(func() error {
		f := os.NewFile(uintptr(descriptor), "crash output")
		if f == nil {
			return fmt.Errorf("golib: %d is no descriptor", descriptor)
		}
		defer f.Close() // SetCrashOutput has made another one of it
		return debug.SetCrashOutput(f, debug.CrashOptions{})
	})
}

// golib_crash ends the process, for the test of the traceback.
//
//export golib_crash
func golib_crash(how *C.char) *C.char {
	crash := map[string]func(){
		"panic": func() { panic("golib: a panic that a test asked for") },
		"fault": func() { var none *int; *none = 1 },
	}[C.GoString(how)]
	if crash == nil {
		return C.CString("golib: no crash is called " + C.GoString(how))
	}
	go crash() // where nothing recovers
	select {}
}
