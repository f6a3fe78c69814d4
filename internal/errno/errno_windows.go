package errno

import (
	"maps"
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

// ofSystem are the numbers that the C library gives to errors of the Windows API and of its sockets, and those that fit where it
// has none. syscall.ENOTDIR is one of them, "path not found", and so ENOENT.
var ofSystem = map[syscall.Errno]syscall.Errno{
	1: syscall.EINVAL, 2: syscall.ENOENT, 3: syscall.ENOENT, 4: syscall.EMFILE, 5: syscall.EACCES, 6: syscall.EBADF,
	7: syscall.ENOMEM, 8: syscall.ENOMEM, 9: syscall.ENOMEM, 10: syscall.E2BIG, 11: syscall.ENOEXEC, 12: syscall.EINVAL,
	13: syscall.EINVAL, 14: syscall.ENOMEM, 15: syscall.ENOENT, 16: syscall.EACCES, 17: syscall.EXDEV, 18: syscall.ENOENT,
	19: syscall.EACCES, 32: syscall.EACCES, 33: syscall.EACCES, 39: syscall.ENOSPC, 50: syscall.ENOTSUP, 53: syscall.ENOENT,
	65: syscall.EACCES, 67: syscall.ENOENT, 80: syscall.EEXIST, 82: syscall.EACCES, 87: syscall.EINVAL, 89: syscall.EAGAIN,
	108: syscall.EACCES, 109: syscall.EPIPE, 112: syscall.ENOSPC, 114: syscall.EBADF, 123: syscall.EINVAL, 128: syscall.ECHILD,
	130: syscall.EBADF, 131: syscall.EINVAL, 132: syscall.EACCES, 145: syscall.ENOTEMPTY, 158: syscall.EACCES, 161: syscall.ENOENT,
	164: syscall.EAGAIN, 167: syscall.EACCES, 183: syscall.EEXIST, 206: syscall.ENOENT, 232: syscall.EPIPE, 258: syscall.ETIMEDOUT,
	995: syscall.ECANCELED, 1223: syscall.ECANCELED, 1455: syscall.ENOMEM, 1460: syscall.ETIMEDOUT, 1816: syscall.ENOMEM,

	10004: syscall.EINTR, 10009: syscall.EBADF, 10013: syscall.EACCES, 10014: syscall.EFAULT, 10022: syscall.EINVAL,
	10024: syscall.EMFILE, 10035: syscall.EWOULDBLOCK, 10036: syscall.EINPROGRESS, 10037: syscall.EALREADY, 10038: syscall.ENOTSOCK,
	10039: syscall.EDESTADDRREQ, 10040: syscall.EMSGSIZE, 10041: syscall.EPROTOTYPE, 10042: syscall.ENOPROTOOPT,
	10043: syscall.EPROTONOSUPPORT, 10045: syscall.EOPNOTSUPP, 10047: syscall.EAFNOSUPPORT, 10048: syscall.EADDRINUSE,
	10049: syscall.EADDRNOTAVAIL, 10050: syscall.ENETDOWN, 10051: syscall.ENETUNREACH, 10052: syscall.ENETRESET,
	10053: syscall.ECONNABORTED, 10054: syscall.ECONNRESET, 10055: syscall.ENOBUFS, 10056: syscall.EISCONN, 10057: syscall.ENOTCONN,
	10060: syscall.ETIMEDOUT, 10061: syscall.ECONNREFUSED, 10062: syscall.ELOOP, 10063: syscall.ENAMETOOLONG, 10065: syscall.EHOSTUNREACH,
}

var byError = make(map[syscall.Errno]int, len(numbers)+len(ofSystem))

func init() {
	for number, err := range numbers {
		if err != 0 {
			byError[err] = number
		}
	}
	byMeaning := maps.Clone(byError)
	for err, meaning := range ofSystem {
		byError[err] = byMeaning[meaning]
	}
}

func code(err syscall.Errno) int { return byError[err] }

func toError(code int) syscall.Errno {
	if code < 0 || code >= len(numbers) {
		return 0
	}
	return numbers[code]
}
