// Package version is what this program was built of.
package version

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
)

// Arrowdevice returns the version of this module in the program.
func Arrowdevice() string {
	if build, ok := debug.ReadBuildInfo(); ok {
		return build.Main.Version
	}
	return "(unknown)"
}

// Print writes the versions of this module and of Go, and the platform.
func Print(w io.Writer) {
	fmt.Fprintf(w, "arrowdevice %s\n%s, %s/%s\n", Arrowdevice(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
