//go:build cgo

package cdata

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/arrowdevice/arrowdevice/internal/live"
)

// A Release too many does nothing, as with arrow-go. While tracing is on, it is reported.

func batchTooMany() {
	report("record batch", "one that Read or Next returned is the reader's")
}

func readerTooMany() {
	report("reader", "its stream was released before")
}

func report(what, hint string) {
	if live.Tracing() {
		fmt.Fprintf(os.Stderr, "cdata: %s: Release of an object without references: %s\n%s", what, hint, debug.Stack())
	}
}
