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
