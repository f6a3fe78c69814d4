package cdevice_test

import (
	"errors"

	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// errSource is the error of a source that fails.
var errSource = errors.New("the source is on fire")

// lastError calls get_last_error.
func lastError(s *cdevice.CArrowDeviceArrayStream) uintptr {
	return cpeer.CallForPointer(s.GetLastError, addressOf(s))
}

// plainError calls get_last_error of a plain stream.
func plainError(s *cdata.CArrowArrayStream) string {
	return bridge.CallPlainGetLastError(plainStream(s))
}
