// Package callsite names the line of a program that has called this module.
package callsite

import (
	"cmp"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
)

const module = "github.com/arrowdevice/arrowdevice/"

// Of describes the call of this module in a stack, whose frames next returns from the inside, as [runtime.Frames.Next]
// does: "main.load (load.go:12), in cdevice.CopyToDevice". Packages that call on behalf of a program, such as arrow-go's
// builders, are named only where no program is in the stack; without them, the outermost function of this module is.
func Of(next func() (f runtime.Frame, more bool)) string {
	called, between := "", ""
	for more := true; more; {
		var f runtime.Frame
		f, more = next()
		switch {
		case f.Function == "" || strings.HasPrefix(f.Function, "runtime."):
		case isLibrary(f):
			called = strings.TrimPrefix(f.Function, module)
		case !isBetween(f):
			return place(f, called)
		case between == "":
			between = place(f, called)
		}
	}
	return cmp.Or(between, called)
}

func place(f runtime.Frame, called string) string {
	return fmt.Sprintf("%s (%s:%d), in %s", f.Function, filepath.Base(f.File), f.Line, called)
}

// isBetween reports whether f calls functions that a program has given it, or calls this module for one.
func isBetween(f runtime.Frame) bool {
	for _, caller := range []string{"testing.", "sync.", "iter.", "github.com/apache/arrow-go/"} {
		if strings.HasPrefix(f.Function, caller) {
			return true
		}
	}
	return false
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
