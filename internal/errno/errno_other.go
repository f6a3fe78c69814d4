//go:build !windows

package errno

import "syscall"

func code(err syscall.Errno) int {
	if int(int32(err)) != int(err) { // an int of C holds the number
		return 0
	}
	return int(err)
}

func toError(code int) syscall.Errno { return syscall.Errno(max(code, 0)) }
