//go:build linux

package share

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// memfd is a file without a name, of so many bytes and with these seals.
func memfd(t *testing.T, size int64, seals int) int {
	t.Helper()
	file, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, unix.Close(file)) })
	require.NoError(t, unix.Ftruncate(file, size))
	_, err = unix.FcntlInt(uintptr(file), unix.F_ADD_SEALS, seals)
	require.NoError(t, err)
	return file
}

// A file that could become shorter under the opener, or is shorter than the ticket says, is refused. Nothing is left.
func TestFilesThatAreRefused(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	const sealed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	page := int64(os.Getpagesize())
	for name, c := range map[string]struct {
		files []int
		want  string
	}{
		"no seals":      {[]int{memfd(t, page, 0)}, "its size can change"},
		"can shrink":    {[]int{memfd(t, page, unix.F_SEAL_GROW)}, "its size can change"},
		"can grow":      {[]int{memfd(t, page, unix.F_SEAL_SHRINK)}, "the file has the seals 0x2, want 0x6: its size can change"},
		"empty":         {[]int{memfd(t, 0, sealed)}, "the file has 0 bytes"},
		"short":         {[]int{memfd(t, page-1, sealed)}, fmt.Sprintf("the file has %d bytes, want %d", page-1, page)},
		"another file":  {[]int{devNull(t)}, "seals: "},
		"one more file": {[]int{memfd(t, page, sealed), memfd(t, page, sealed)}, "the owner has sent 2 files, want 1"},
	} {
		t.Run(name, func(t *testing.T) {
			ticket := fakeOwner(t, func(conn net.Conn) {
				_, _ = conn.Read(make([]byte, 1000))
				_, _, _ = conn.(*net.UnixConn).WriteMsgUnix([]byte{1}, unix.UnixRights(c.files...), nil)
				_, _ = conn.Read(make([]byte, 1))
				conn.Close()
			})
			_, err := Open(background, ticket)
			require.ErrorContains(t, err, c.want)
			before := counted(t)
			for range 20 {
				_, err := Open(background, ticket)
				require.ErrorContains(t, err, c.want)
			}
			within.Eventually(t, "nothing is left", func() bool {
				now := counted(t)
				return now.files <= before.files && now.mappings <= before.mappings
			})
		})
	}
}

func devNull(t *testing.T) int {
	t.Helper()
	file, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, unix.Close(file)) })
	return file
}

// A program that opens a ticket by itself can neither write the file that it receives, nor make it shorter.
func TestFilesAreReadOnly(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	s := one(t)
	socket, request := requestOf(t, s.Ticket())
	dialed, err := net.Dial("unixpacket", socket)
	require.NoError(t, err)
	conn := dialed.(*net.UnixConn)
	_, err = conn.Write(request)
	require.NoError(t, err)
	answer, rights := make([]byte, 1), make([]byte, 100)
	_, n, _, _, err := conn.ReadMsgUnix(answer, rights)
	require.NoError(t, err)
	require.Equal(t, []byte{1}, answer)
	messages, err := unix.ParseSocketControlMessage(rights[:n])
	require.NoError(t, err)
	files, err := unix.ParseUnixRights(&messages[0])
	require.NoError(t, err)
	require.Len(t, files, 1)
	_, err = unix.Mmap(files[0], 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	assert.ErrorIs(t, err, unix.EPERM)
	_, err = unix.Pwrite(files[0], []byte{1}, 0)
	assert.ErrorIs(t, err, unix.EPERM)
	assert.ErrorIs(t, unix.Ftruncate(files[0], 0), unix.EPERM)
	require.NoError(t, unix.Close(files[0]))
	_, err = conn.Write([]byte("r"))
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	within.Eventually(t, "the owner has read that", func() bool { return s.Openers() == 0 })
}

// An open batch holds a socket at both ends, and no file: its mapping is enough. The function of WithOwnerGone is not
// called when the batch is released.
func TestOpenBatchHoldsASocket(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which closes a socket that is left
	b := numbers(t, allocator(t))
	defer b.Release()
	s, keeps := issued(t, b), issued(t, b) // so that the owner's socket is there before and after
	files, mappings := held(t)
	more := func(wantFiles, wantMappings int) func() bool {
		return func() bool {
			nowFiles, nowMappings := held(t)
			return since(files, nowFiles) == wantFiles && since(mappings, nowMappings) == wantMappings
		}
	}
	var gone atomic.Int32
	opened, err := openHere(background, s.Ticket(), WithOwnerGone(func() { gone.Add(1) }))
	require.NoError(t, err)
	within.Eventually(t, "two sockets and a mapping", more(2, 1))
	var others []int // which take the numbers of the files
	for range 5 {
		others = append(others, devNull(t))
	}
	opened.Release()
	requireReleased(t, s)
	within.Eventually(t, "nothing is left", more(len(others), 0))
	for _, file := range others {
		_, err := unix.FcntlInt(uintptr(file), unix.F_GETFD, 0)
		assert.NoError(t, err, "the file of another part of the program is open")
	}
	within.Eventually(t, "its goroutine has ended", func() bool { return !strings.Contains(stacks(), "share.(*connection).watch") })
	assert.Zero(t, gone.Load())
	require.NoError(t, keeps.Close())
}

func stacks() string {
	b := make([]byte, 4<<20)
	return string(b[:runtime.Stack(b, true)])
}

// The times for the handshake, and the context of Open, are not those for the batch.
func TestOpenForLong(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	withTimeouts(time.Second, time.Second, func() {
		s := shareAndRelease(t, numbers(t, allocator(t)))
		call, end := context.WithCancel(background)
		opened, err := openHere(call, s.Ticket(), WithOwnerGone(func() { t.Error("the owner is there") }))
		require.NoError(t, err)
		end()
		// An owner whose connection had ended would wait for the death of the opener, for a second as well.
		requireHeld(t, s, 3*time.Second)
		opened.Release()
		requireReleased(t, s)
	})
}

// The event of the owner is closed if ctx ends while the memory of a GPU is being opened.
func TestOpeningOfAnEventIsGivenUp(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	stream := cudatest.NewStream(t, gpu)
	let := m.Hold(t, stream)
	s := shareAndRelease(t, numbersOnGPU(t, gpu, cdevice.WithStream(stream)))
	p := opener(t, m.Path())
	assert.Equal(t, "given up, 0 events", told(p, "give up", hex.EncodeToString(s.Ticket())))
	within.Eventually(t, "the opening does not count", func() bool { return s.Openers() == 0 })
	require.Equal(t, "opened", opens(p, s.Ticket()))
	let()
	requireEnd(t, p, s)
	require.NoError(t, gpu.Flush(background))
}
