package errno

import (
	"io/fs"
	"syscall"
)

// numbers are those of errno.h of the C library, by number.
var numbers = [...]syscall.Errno{
	1:   syscall.EPERM,
	2:   syscall.ENOENT,
	3:   syscall.ESRCH,
	4:   syscall.EINTR,
	5:   syscall.EIO,
	6:   syscall.ENXIO,
	7:   syscall.E2BIG,
	8:   syscall.ENOEXEC,
	9:   syscall.EBADF,
	10:  syscall.ECHILD,
	11:  syscall.EAGAIN,
	12:  syscall.ENOMEM,
	13:  syscall.EACCES,
	14:  syscall.EFAULT,
	16:  syscall.EBUSY,
	17:  syscall.EEXIST,
	18:  syscall.EXDEV,
	19:  syscall.ENODEV,
	20:  syscall.ENOTDIR,
	21:  syscall.EISDIR,
	22:  syscall.EINVAL,
	23:  syscall.ENFILE,
	24:  syscall.EMFILE,
	25:  syscall.ENOTTY,
	27:  syscall.EFBIG,
	28:  syscall.ENOSPC,
	29:  syscall.ESPIPE,
	30:  syscall.EROFS,
	31:  syscall.EMLINK,
	32:  syscall.EPIPE,
	33:  syscall.EDOM,
	34:  syscall.ERANGE,
	36:  syscall.EDEADLK,
	38:  syscall.ENAMETOOLONG,
	39:  syscall.ENOLCK,
	40:  syscall.ENOSYS,
	41:  syscall.ENOTEMPTY,
	42:  syscall.EILSEQ,
	100: syscall.EADDRINUSE,
	101: syscall.EADDRNOTAVAIL,
	102: syscall.EAFNOSUPPORT,
	103: syscall.EALREADY,
	104: syscall.EBADMSG,
	105: syscall.ECANCELED,
	106: syscall.ECONNABORTED,
	107: syscall.ECONNREFUSED,
	108: syscall.ECONNRESET,
	109: syscall.EDESTADDRREQ,
	110: syscall.EHOSTUNREACH,
	111: syscall.EIDRM,
	112: syscall.EINPROGRESS,
	113: syscall.EISCONN,
	114: syscall.ELOOP,
	115: syscall.EMSGSIZE,
	116: syscall.ENETDOWN,
	117: syscall.ENETRESET,
	118: syscall.ENETUNREACH,
	119: syscall.ENOBUFS,
	120: syscall.ENODATA,
	121: syscall.ENOLINK,
	122: syscall.ENOMSG,
	123: syscall.ENOPROTOOPT,
	124: syscall.ENOSR,
	125: syscall.ENOSTR,
	126: syscall.ENOTCONN,
	127: syscall.ENOTRECOVERABLE,
	128: syscall.ENOTSOCK,
	129: syscall.ENOTSUP,
	130: syscall.EOPNOTSUPP,
	132: syscall.EOVERFLOW,
	133: syscall.EOWNERDEAD,
	134: syscall.EPROTO,
	135: syscall.EPROTONOSUPPORT,
	136: syscall.EPROTOTYPE,
	137: syscall.ETIME,
	138: syscall.ETIMEDOUT,
	139: syscall.ETXTBSY,
	140: syscall.EWOULDBLOCK,
}

var byError = make(map[syscall.Errno]int, len(numbers))

func init() {
	for number, err := range numbers {
		if err != 0 {
			byError[err] = number
		}
	}
}

// Errors of the Windows API that package syscall has no name for.
const (
	notEnoughMemory = syscall.Errno(8)
	outOfMemory     = syscall.Errno(14)
	commitmentLimit = syscall.Errno(1455)
)

// code finds errors of the Windows API by the meaning that package syscall gives them.
func code(err syscall.Errno) int {
	if number, ok := byError[err]; ok {
		return number
	}
	switch {
	case err == notEnoughMemory, err == outOfMemory, err == commitmentLimit:
		return byError[syscall.ENOMEM]
	case err.Is(fs.ErrNotExist):
		return byError[syscall.ENOENT]
	case err.Is(fs.ErrExist):
		return byError[syscall.EEXIST]
	case err.Is(fs.ErrPermission):
		return byError[syscall.EACCES]
	}
	return 0
}

func toError(code int) syscall.Errno {
	if code < 0 || code >= len(numbers) {
		return 0
	}
	return numbers[code]
}
