// Package errno converts between the system's errors in Go and the numbers of errno.h in C, which callbacks return.
//
// On Unix they are the same. On Windows a syscall.Errno is an error of the Windows API, or, as syscall.EIO, a number that only
// Go knows; the numbers of errno.h are those of the C library.
package errno

import "syscall"

// Code returns the number in C of an error, or 0 if it has none.
func Code(err syscall.Errno) int { return code(err) }

// Error returns the error of a number in C, or 0 if there is none: every positive number has one on Unix.
func Error(code int) syscall.Errno { return toError(code) }
