package cdevice

import (
	"context"
	"errors"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
)

// errnos maps errors to codes of C and back: callbacks
// return the code of the first entry that an error wraps, and an error that came with a
// code wraps that code's entries.
var errnos = []struct {
	err  error
	code syscall.Errno
}{
	{context.Canceled, syscall.ECANCELED},
	{context.DeadlineExceeded, syscall.ETIMEDOUT},
	{device.ErrNotSupported, syscall.ENOTSUP},
	{arrow.ErrNotImplemented, syscall.ENOSYS},
	{arrow.ErrInvalid, syscall.EINVAL},
	{arrow.ErrType, syscall.EINVAL},
	{arrow.ErrKey, syscall.EINVAL},
	{arrow.ErrIndex, syscall.EINVAL},
}

// errnoOf returns the code of an error for a consumer in C: the code that it came with, the
// table's, or EIO.
func errnoOf(err error) int {
	var coded interface{ errno() int }
	if errors.As(err, &coded) && isCode(coded.errno()) {
		return coded.errno()
	}
	var errno syscall.Errno
	if errors.As(err, &errno) && isCode(int(errno)) {
		return int(errno)
	}
	for _, e := range errnos {
		if errors.Is(err, e.err) {
			return int(e.code)
		}
	}
	return int(syscall.EIO)
}

// isCode reports whether the number is an error code in C: it fits an int and is not zero.
func isCode(code int) bool { return code != 0 && int(int32(code)) == code }

// errorsOf returns the errors that an error with a code from C wraps.
func errorsOf(code int) []error {
	if code <= 0 {
		return nil // not an errno: nothing is known about it
	}
	wrapped := []error{syscall.Errno(code)}
	for _, e := range errnos {
		if int(e.code) == code {
			wrapped = append(wrapped, e.err)
			break
		}
	}
	return wrapped
}
