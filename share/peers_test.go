//go:build linux

package share

import (
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
	"github.com/arrowdevice/arrowdevice/internal/testing/otherprocess"
)

// Silent connections, and those that send garbage, delay openers by the handshake at most, and take no batch.
func TestConnectionsWithoutARequest(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	withTimeouts(time.Second, exitTimeout, func() {
		s := shareAndRelease(t, numbers(t, allocator(t)))
		socket, _ := requestOf(t, s.Ticket())
		dial := func() net.Conn {
			conn, err := net.Dial("unixpacket", socket)
			require.NoError(t, err)
			return conn
		}
		ended := func(conn net.Conn) {
			t.Helper()
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(limit)))
			n, err := conn.Read(make([]byte, 1))
			assert.True(t, n == 0 || err != nil, "the owner ends the connection")
			assert.False(t, os.IsTimeout(err))
			conn.Close()
		}
		for _, garbage := range []string{"GET / HTTP/1.1\r\n\r\n", strings.Repeat("a", requestSize), strings.Repeat("b", 100000)} {
			conn := dial()
			_, err := conn.Write([]byte(garbage))
			require.NoError(t, err)
			ended(conn)
		}
		var silent []net.Conn
		for range 2 * maxPending {
			silent = append(silent, dial())
		}
		for _, conn := range silent {
			ended(conn)
		}
		p := opener(t, "")
		require.Equal(t, "opened", opens(p, s.Ticket()), "connections that have ended keep nobody out")
		requireEnd(t, p, s)
	})
}

// TestSilent is a process that connects to a socket, which is its first line, as often as its second says, and says nothing there.
func TestSilent(t *testing.T) {
	caller := otherprocess.Caller(t)
	socket, times := caller.Read(), 0
	_, err := fmt.Sscan(caller.Read(), &times)
	require.NoError(t, err)
	for range times {
		conn, err := net.Dial("unixpacket", socket)
		require.NoError(t, err)
		defer conn.Close()
	}
	caller.Write("connected")
	caller.Read() // until it is killed
}

// Connections that say nothing keep no opener out, however long they may be silent: neither those of the same user, nor those of
// another one, which take none of the places for them.
func TestSilentConnections(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for name, c := range map[string]struct {
		start func(*testing.T) func(*exec.Cmd)
		n     int
	}{
		"same user":    {func(*testing.T) func(*exec.Cmd) { return func(*exec.Cmd) {} }, 4 * maxPending},
		"another user": {asAnotherUser, 4 * maxPending},
	} {
		t.Run(name, func(t *testing.T) {
			withTimeouts(time.Hour, exitTimeout, func() {
				s := shareAndRelease(t, numbers(t, allocator(t)))
				silent := otherprocess.StartAs(t, c.start(t), "TestSilent", "")
				socket, _ := requestOf(t, s.Ticket())
				silent.Write(socket)
				silent.Write(fmt.Sprint(c.n))
				require.Equal(t, "connected", silent.Read())
				p := opener(t, "")
				require.Equal(t, "opened", opens(p, s.Ticket()))
				requireEnd(t, p, s)
				silent.Kill()
			})
		})
	}
}

// TestOwnerOfFewFiles is an owner that shares a batch, and then has no descriptor until it is told.
func TestOwnerOfFewFiles(t *testing.T) {
	caller := otherprocess.Caller(t)
	s := one(t)
	caller.Write(hex.EncodeToString(s.Ticket()))
	require.Equal(t, "few", caller.Read())
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: before.Max}))
	caller.Write("few")
	caller.Read()
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	caller.Read()
}

// An opener waits while its owner has no descriptor for it.
func TestOwnerWithoutDescriptors(t *testing.T) {
	owner, p := otherprocess.Start(t, "TestOwnerOfFewFiles", ""), opener(t, "")
	ticket := owner.Read()
	require.Equal(t, "few", told(owner, "few"))
	p.Write("open")
	p.Write(ticket)
	time.Sleep(50 * time.Millisecond) // so that the owner has most likely tried
	owner.Write("many")
	require.Equal(t, "opened", p.Read())
	require.Equal(t, "released", told(p, "release"))
}

// A process of another user cannot open a ticket.
func TestAnotherUser(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	s := one(t)
	p := otherprocess.StartAs(t, asAnotherUser(t), "TestOpenAsAnotherUser", "")
	p.Write(hex.EncodeToString(s.Ticket()))
	assert.Equal(t, "refused", p.Read())
	p.End(0)
}

// asAnotherUser returns a setter of a command's user: nobody.
func asAnotherUser(t *testing.T) func(*exec.Cmd) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can start processes of others")
	}
	binary, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755)) //nolint:gosec // for the other user
	require.NoError(t, os.WriteFile(dir+"/test", binary, 0o755))
	return func(c *exec.Cmd) {
		emulated.Replace(c, dir+"/test")
		c.Dir = dir
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
}

// TestOpenAsAnotherUser is the process of the other user: the opener refuses, and so does the owner, before it reads anything.
func TestOpenAsAnotherUser(t *testing.T) {
	caller := otherprocess.Caller(t)
	ticket, err := hex.DecodeString(caller.Read())
	require.NoError(t, err)
	_, err = Open(background, ticket)
	assert.ErrorIs(t, err, ErrOtherUser)
	socket, _ := requestOf(t, ticket)
	conn, err := net.Dial("unixpacket", socket)
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(limit)))
	answer := make([]byte, 10)
	n, err := conn.Read(answer)
	require.NoError(t, err)
	assert.Equal(t, []byte{4}, answer[:n])
	caller.Write("refused")
}

// A process of another user that listens on the name of a socket learns nothing of a ticket.
func TestOwnerIsAnotherUser(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	p := otherprocess.StartAs(t, asAnotherUser(t), "TestListenAsAnotherUser", "")
	socket := p.Read()
	ticket := forOwner(t, socket)
	_, err := Open(background, ticket)
	assert.ErrorIs(t, err, ErrOtherUser)
	assert.Equal(t, "EOF", p.Read())
}

// A socket that no owner has named is not connected to: it may be of any program.
func TestForeignSocket(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for _, name := range []string{"foreign", "arrowdevice-1", strings.ToUpper(anySocketName()), "/" + anySocketName(), ""} {
		l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: "@" + name, Net: "unixpacket"})
		require.NoError(t, err)
		ticket := forOwner(t, name)
		_, err = Open(background, ticket)
		assert.ErrorIs(t, err, ErrBadTicket)
		assert.ErrorContains(t, err, "share: ticket: socket = ")
		require.NoError(t, l.SetDeadline(time.Now().Add(time.Millisecond)))
		_, err = l.Accept()
		assert.True(t, os.IsTimeout(err), "%v", err)
		require.NoError(t, l.Close())
	}
}

// TestListenAsAnotherUser is the process of the other user: it repeats what openers send.
func TestListenAsAnotherUser(t *testing.T) {
	caller := otherprocess.Caller(t)
	name := anySocketName()
	l, err := net.Listen("unixpacket", "@"+name)
	require.NoError(t, err)
	defer l.Close()
	caller.Write(name)
	conn, err := l.Accept()
	require.NoError(t, err)
	said, err := io.ReadAll(conn)
	require.NoError(t, err)
	caller.Write(string(said) + "EOF")
}
