package errno

import (
	"net"
	"os"
	"path/filepath"
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
		if runtime.GOOS != "windows" || e.Error != syscall.ENOTDIR { // which is the system's error of an absent folder there
			assert.Equal(t, e.Code, Code(e.Error), "%v in C", e.Error)
		}
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
func TestErrorsOfTheSystem(t *testing.T) {
	full, err := os.MkdirTemp("", "errno") // t.TempDir removes it with a call that wine 8 has not
	require.NoError(t, err)
	defer os.Remove(full)
	file := filepath.Join(full, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	defer os.Remove(file)
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	defer writer.Close()
	reader.Close()
	for name, c := range map[string]struct {
		do   func() error
		want syscall.Errno
	}{
		"absent file":         {func() error { _, err := os.Open("absent"); return err }, syscall.ENOENT},
		"absent folder":       {func() error { _, err := os.Open(filepath.Join("absent", "file")); return err }, syscall.ENOENT},
		"folder that exists":  {func() error { return os.Mkdir(full, 0o700) }, syscall.EEXIST},
		"full folder":         {func() error { return os.Remove(full) }, syscall.ENOTEMPTY},
		"closed pipe":         {func() error { _, err := writer.WriteString("text"); return err }, syscall.EPIPE},
		"port without server": {func() error { _, err := net.Dial("tcp", "127.0.0.1:1"); return err }, syscall.ECONNREFUSED},
	} {
		var errno syscall.Errno
		if assert.ErrorAs(t, c.do(), &errno, name) {
			assert.Equal(t, Code(c.want), Code(errno), "%s: %d", name, errno)
		}
	}
}

func TestErrorsOfTheWindowsAPI(t *testing.T) {
	if runtime.GOOS != "windows" {
		t.Skip("there is no Windows API")
	}
	for code, want := range map[syscall.Errno]syscall.Errno{
		3: syscall.ENOENT, 5: syscall.EACCES, 8: syscall.ENOMEM, 80: syscall.EEXIST, 1455: syscall.ENOMEM, 1460: syscall.ETIMEDOUT,
		10048: syscall.EADDRINUSE, 10054: syscall.ECONNRESET, 10060: syscall.ETIMEDOUT,
	} {
		assert.Equal(t, Code(want), Code(code), "%d: %v", code, code)
	}
	assert.Zero(t, Code(999), "an error without a meaning in C")
	assert.Zero(t, Error(999))
}
