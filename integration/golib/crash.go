//go:build cgo

package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/arrowdevice/arrowdevice/pyextension"
)

func init() {
	pyextension.Func("crash_output", crashOutput, pyextension.WithParams("descriptor"))
	pyextension.Func("crash", crash, pyextension.WithParams("how"))
}

// crashOutput has the traceback of a crash written to a descriptor, beside standard error, which may be captured. It takes
// the descriptor.
func crashOutput(descriptor int64) error {
	f := os.NewFile(uintptr(descriptor), "crash output")
	if f == nil {
		return fmt.Errorf("golib: %d is no descriptor", descriptor)
	}
	defer f.Close() // SetCrashOutput has made another one of it
	return debug.SetCrashOutput(f, debug.CrashOptions{})
}

// crash ends the process, for the test of the traceback.
func crash(how string) error {
	crash := map[string]func(){
		"panic": func() { panic("golib: a panic that a test asked for") },
		"fault": func() { var none *int; *none = 1 },
	}[how]
	if crash == nil {
		return fmt.Errorf("golib: no crash is called %q", how)
	}
	go crash() // where nothing recovers
	select {}
}
