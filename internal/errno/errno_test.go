package errno

import (
	"io/fs"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// The C compiler knows the numbers.
func TestNumbersAreThoseOfErrnoH(t *testing.T) {
	for _, e := range cpeer.Errnos {
		assert.Equal(t, e.Code, Code(e.Error), "%v in C", e.Error)
		assert.Equal(t, e.Error, Error(e.Code), "%d in Go", e.Code)
	}
}

func TestNoError(t *testing.T) {
	assert.Zero(t, Code(0))
	for _, code := range []int{0, -1, -5} {
		assert.Zero(t, Error(code), code)
	}
}

// An error that Go got from the system has the number that C would have got.
func TestErrorOfTheSystem(t *testing.T) {
	_, err := os.Open("absent")
	require.ErrorIs(t, err, fs.ErrNotExist)
	var errno syscall.Errno
	require.ErrorAs(t, err, &errno)
	assert.Equal(t, Code(syscall.ENOENT), Code(errno))
}

func TestErrorsOfTheWindowsAPI(t *testing.T) {
	if runtime.GOOS != "windows" {
		t.Skip("there is no Windows API")
	}
	for code, want := range map[syscall.Errno]syscall.Errno{
		2: syscall.ENOENT, 5: syscall.EACCES, 8: syscall.ENOMEM, 14: syscall.ENOMEM, 80: syscall.EEXIST, 183: syscall.EEXIST,
		1455: syscall.ENOMEM,
	} {
		assert.Equal(t, Code(want), Code(code), "%d: %v", code, code)
	}
	assert.Zero(t, Code(1), "an error without a meaning in C")
	assert.Zero(t, Error(999))
}
