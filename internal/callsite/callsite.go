// Package callsite names the line of a program that has called this module.
package callsite

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

const module = "github.com/arrowdevice/arrowdevice/"

// Of describes the call of this module in a stack, whose frames next returns from the inside, as [runtime.Frames.Next]
// does: "main.load (load.go:12), in cdevice.CopyToDevice". Where no program has called it, that is the outermost
// function of this module.
func Of(next func() (f runtime.Frame, more bool)) string {
	called := ""
	for {
		f, more := next()
		if !isLibrary(f) {
			if f.Function == "" || strings.HasPrefix(f.Function, "runtime.") {
				return called
			}
			return fmt.Sprintf("%s (%s:%d), in %s", f.Function, filepath.Base(f.File), f.Line, called)
		}
		called = strings.TrimPrefix(f.Function, module)
		if !more {
			return called
		}
	}
}

// isLibrary reports whether f is of a package that programs import: those below these folders, and tests, are programs.
func isLibrary(f runtime.Frame) bool {
	path, ours := strings.CutPrefix(f.Function, module)
	if !ours || strings.HasSuffix(f.File, "_test.go") {
		return false
	}
	for _, program := range []string{"examples/", "cmd/", "bench/", "integration/", "ci/"} {
		if strings.HasPrefix(path, program) {
			return false
		}
	}
	return true
}
