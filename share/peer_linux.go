package share

import (
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// peerOf returns the process at the other end, and its user, as the kernel reports them.
func peerOf(conn *net.UnixConn) (peer *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	if ctl := raw.Control(func(fd uintptr) {
		peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); ctl != nil {
		return nil, ctl
	}
	return peer, err
}

// overflowUser returns the number that stands for all users that the user namespace of this process does not map, or -1 if it
// maps all.
var overflowUser = sync.OnceValue(func() int64 {
	users, err := os.ReadFile("/proc/self/uid_map")
	if f := strings.Fields(string(users)); err == nil && len(f) == 3 && f[0] == "0" && f[2] == "4294967295" {
		return -1
	}
	text, _ := os.ReadFile("/proc/sys/kernel/overflowuid")
	if user, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil {
		return user
	}
	return 65534
})

// sameUser reports whether a peer is a process of the same user.
func sameUser(peer *unix.Ucred) bool {
	// mutant: return peer.Uid == uint32(os.Geteuid())
	return peer.Uid == uint32(os.Geteuid()) && int64(peer.Uid) != overflowUser()
}

// awaitExit waits for the exit of a process whose socket was closed before it sent anything: the system closes the sockets of
// a killed process while its memory may still be mapped. The wait is bounded, since the process may be alive.
func awaitExit(conn *net.UnixConn, pid int32) {
	file, err := processOf(conn, pid)
	if err != nil { // the process has exited, or is in a PID namespace that is not visible here
		return
	}
	defer unix.Close(file)
	for end := time.Now().Add(exitTimeout); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		poll := []unix.PollFd{{Fd: int32(file), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 0); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// processOf returns a pidfd of the process at the other end: from the socket, which since Linux 6.5 works across PID
// namespaces, or by its number.
func processOf(conn *net.UnixConn, pid int32) (file int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	if ctl := raw.Control(func(fd uintptr) {
		file, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	}); ctl != nil {
		return 0, ctl
	}
	if errors.Is(err, unix.ENOPROTOOPT) {
		return unix.PidfdOpen(int(pid), 0)
	}
	return file, err
}
