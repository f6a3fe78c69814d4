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
	report("record batch", "one that a reader returned is the reader's until the next one is read")
}

func readerTooMany() {
	report("reader", "ExportRecordReader takes no reference of its caller's")
}

func report(what, why string) {
	if live.Tracing() {
		fmt.Fprintf(os.Stderr, "cdata: %s: Release of an object without references: %s\n%s", what, why, debug.Stack())
	}
}
