package cdevice

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
)

// AsyncError is an error that the producer of an asynchronous stream reported:
//
//	cdevice: import: ArrowAsyncDeviceStreamHandler.on_error: input/output error (errno 5): disk on fire
//
// It wraps what [StreamError] wraps. Exported again, it keeps its code.
type AsyncError struct {
	// Callback is on_error, or extract_data where a task failed and the producer said
	// nothing more of it.
	Callback string
	Code     int            // meant to be an errno
	Message  string         // what on_error was told, 64 KiB of it at most; may be empty
	Metadata arrow.Metadata // the same; usually empty
}

func (e *AsyncError) Error() string {
	owner := "ArrowAsyncDeviceStreamHandler"
	if e.Callback == "extract_data" {
		owner = "ArrowAsyncTask"
	}
	text := fmt.Sprintf("cdevice: import: %s.%s: %s", owner, e.Callback, codeText(e.Code))
	if e.Message != "" {
		text += ": " + e.Message
	}
	return text
}

// Unwrap returns what the code means.
func (e *AsyncError) Unwrap() []error { return errorsOf(e.Code) }

func (e *AsyncError) errno() int { return e.Code }

// errNoEnd is the error of a stream that was released in the middle.
var errNoEnd = fmt.Errorf("cdevice: import: ArrowAsyncDeviceStreamHandler.release before the end of the stream: %w", io.ErrUnexpectedEOF)
