package share

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const supported = true

// Tests have less time.
var (
	// handshake is how long a stranger may take to say who it is.
	handshake = 5 * time.Second
	// afterDeath is how long the system may take to end a process whose socket it has closed.
	afterDeath = 10 * time.Second
)

const (
	// patience is how long an owner may take to answer, with strangers before the opener.
	patience = 15 * time.Second
	// maxStrangers bounds the connections that have not said it yet.
	maxStrangers = 256
	// maxFiles is how many descriptors one message takes (SCM_MAX_FD).
	maxFiles = 253
)

// thisProcess tells tickets of this process from others.
var thisProcess = func() (p id) {
	_, _ = rand.Read(p[:]) // it does not fail
	return p
}()

// bootID is the number of the machine that changes with each start of it.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("share: boot_id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

// namespace is the number of a namespace of this process, or 0.
func namespace(kind string) uint64 {
	var info unix.Stat_t
	if unix.Stat("/proc/self/ns/"+kind, &info) != nil {
		return 0
	}
	return info.Ino
}

// ownerList has the batches that this process shares, and the socket on which openers ask for them.
type ownerList struct {
	mu        sync.Mutex
	byToken   map[id]*Shared
	name      string
	listener  *net.UnixListener // nil while nothing is shared
	strangers chan struct{}     // has a value for each connection that has not said who it is
}

var owned = ownerList{byToken: map[id]*Shared{}, strangers: make(chan struct{}, maxStrangers)}

// add makes the socket if it is the first batch, and the ticket with its name.
func (o *ownerList) add(s *Shared, ticket func(socket string) error) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.listener == nil {
		if err := o.listen(); err != nil {
			return err
		}
	}
	if err := ticket(o.name); err != nil {
		o.stopIfUnused()
		return err
	}
	o.byToken[s.token] = s
	return nil
}

func (o *ownerList) listen() error {
	var random id
	if _, err := rand.Read(random[:]); err != nil {
		return fmt.Errorf("share: a random number: %w", err)
	}
	name := "arrowdevice-" + hex.EncodeToString(random[:])
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: "@" + name, Net: "unixpacket"})
	if err != nil {
		return fmt.Errorf("share: %w", err)
	}
	o.name, o.listener = name, l
	go o.accept(l)
	return nil
}

func (o *ownerList) remove(s *Shared) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.byToken, s.token)
	o.stopIfUnused()
}

func (o *ownerList) stopIfUnused() {
	if len(o.byToken) == 0 && o.listener != nil {
		_ = o.listener.Close()
		o.listener = nil
	}
}

func (o *ownerList) find(token id) *Shared {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byToken[token]
}

// accept serves openers until the listener is closed. Beyond so many strangers the system keeps the connections.
func (o *ownerList) accept(l *net.UnixListener) {
	for {
		o.strangers <- struct{}{}
		conn, err := l.AcceptUnix()
		if err == nil {
			go o.serve(conn)
			continue
		}
		<-o.strangers
		if errors.Is(err, net.ErrClosed) {
			return
		}
		time.Sleep(10 * time.Millisecond) // no descriptor is left, say
	}
}

// status is the owner's answer.
type status byte

const (
	welcome status = iota + 1
	used
	changed
	otherUser
)

// hello is what an opener says: token and digest of its ticket, behind a text that no other protocol has.
const helloText = "arrowdevice share 1\n"

const helloSize = len(helloText) + len(id{}) + 32

// What an opener says at its end.
const (
	released = 'r'
	failed   = 'f' // it could not open the memory
)

// serve is the owner's end of a connection. It holds a goroutine while the batch is open, and no thread.
func (o *ownerList) serve(conn *net.UnixConn) {
	defer conn.Close()
	s, pid := o.greet(conn)
	<-o.strangers
	if s == nil {
		return
	}
	var last [1]byte
	n, err := conn.Read(last[:])
	if errors.Is(err, unix.ECONNRESET) { // it did not read the answer; its last word is behind this error
		n, _ = conn.Read(last[:])
	}
	if n == 0 { // it ended without a word
		awaitDeath(conn, pid)
	}
	s.leave(n == 1 && last[0] == failed)
}

// greet reads the hello of an opener, and answers. It returns the batch that the opener has from then on.
func (o *ownerList) greet(conn *net.UnixConn) (*Shared, int32) {
	_ = conn.SetDeadline(time.Now().Add(handshake))
	peer, err := peerOf(conn)
	if err != nil {
		return nil, 0
	}
	b := make([]byte, helloSize+1)
	n, err := conn.Read(b)
	if err != nil || n != helloSize || string(b[:len(helloText)]) != helloText {
		return nil, 0
	}
	if peer.Uid != uint32(os.Geteuid()) {
		_, _ = conn.Write([]byte{byte(otherUser)})
		return nil, 0
	}
	token, digest := id(b[len(helloText):]), [32]byte(b[len(helloText)+len(id{}):])
	s, answer := o.find(token), used
	if s != nil {
		answer = s.admit(digest)
	}
	if answer != welcome {
		_, _ = conn.Write([]byte{byte(answer)})
		return nil, 0
	}
	var rights []byte
	if len(s.held.blocks) > 0 {
		files := make([]int, len(s.held.blocks))
		for i, b := range s.held.blocks {
			files[i] = b.file
		}
		rights = unix.UnixRights(files...)
	}
	if _, _, err := conn.WriteMsgUnix([]byte{byte(welcome)}, rights, nil); err != nil {
		s.leave(true)
		return nil, 0
	}
	_ = conn.SetDeadline(time.Time{})
	return s, peer.Pid
}

// peerOf returns the process at the other end, and its user.
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

// awaitDeath waits until a process has ended whose socket was closed without a word: the system closes the socket
// of a killed process while its memory may still be mapped. A process that goes on is not waited for long.
func awaitDeath(conn *net.UnixConn, pid int32) {
	file, err := processOf(conn, pid)
	if err != nil { // it has ended, or has no number here
		return
	}
	defer unix.Close(file)
	for end := time.Now().Add(afterDeath); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		poll := []unix.PollFd{{Fd: int32(file), Events: unix.POLLIN}}
		if n, err := unix.Poll(poll, 0); n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// processOf opens the process at the other end: by its socket, which since Linux 6.5 knows it in any PID namespace, or
// by its number.
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

// connection is the opener's end.
type connection struct {
	*net.UnixConn
	files []int // of the regions of host memory
	ended atomic.Bool
}

// dial connects to the owner. Where more wait than the system keeps connections for, it tries again: a socket of this kind has
// no wait for that.
func dial(ctx context.Context, socket string) (conn net.Conn, err error) {
	dialer := net.Dialer{Timeout: patience}
	for end := time.Now().Add(patience); ; {
		conn, err = dialer.DialContext(ctx, "unixpacket", "@"+socket)
		if !errors.Is(err, unix.EAGAIN) || time.Now().After(end) {
			return conn, err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// connect asks the owner for the batch.
func connect(ctx context.Context, t Ticket, c *content) (_ *connection, err error) {
	dialed, err := dial(ctx, c.socket)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, fmt.Errorf("share: open: %w", ctx.Err())
	case errors.Is(err, unix.EAGAIN):
		return nil, fmt.Errorf("share: open: the owner does not answer: too many openers wait before this one (%w)", err)
	default:
		return nil, fmt.Errorf("share: open: %w (%w)", ErrOwnerGone, err)
	}
	conn := &connection{UnixConn: dialed.(*net.UnixConn)}
	defer func() {
		if err != nil {
			conn.end(failed)
		}
	}()
	_ = conn.SetDeadline(time.Now().Add(patience))
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = conn.SetDeadline(time.Unix(1, 0))
	})
	halt := sync.OnceFunc(func() {
		if !stop() {
			<-interrupted // before there is another deadline: that of the goodbye, or none
		}
	})
	defer halt()
	answer, err := conn.ask(t, c)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("share: open: %w", ctx.Err())
	case err != nil:
		return nil, fmt.Errorf("share: open: %w", err)
	}
	switch answer {
	case welcome:
	case used:
		return nil, fmt.Errorf("share: open: %w", ErrUsed)
	case changed:
		return nil, fmt.Errorf("share: open: it is not the ticket that the owner has issued: %w", ErrBadTicket)
	case otherUser:
		return nil, fmt.Errorf("share: open: %w", ErrOtherUser)
	default:
		return nil, fmt.Errorf("share: open: the owner answers %d: %w", answer, ErrBadTicket)
	}
	halt()
	_ = conn.SetDeadline(time.Time{})
	return conn, nil
}

// ask says hello, and reads the answer.
func (c *connection) ask(t Ticket, of *content) (status, error) {
	peer, err := peerOf(c.UnixConn)
	if err != nil {
		return 0, err
	}
	if peer.Uid != uint32(os.Geteuid()) {
		return 0, ErrOtherUser
	}
	digest := t.digest()
	hello := append(append([]byte(helloText), of.token[:]...), digest[:]...)
	if _, err := c.Write(hello); err != nil {
		return 0, fmt.Errorf("%w (%w)", ErrOwnerGone, err)
	}
	answer, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4*maxFiles))
	n, space, flags, _, err := c.ReadMsgUnix(answer, rights)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, fmt.Errorf("the owner does not answer: %w", err)
	}
	if err != nil || n == 0 {
		if err == nil {
			err = errors.New("it says nothing")
		}
		return 0, fmt.Errorf("%w (%w)", ErrOwnerGone, err)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:space])
	if err != nil {
		return 0, err
	}
	for _, m := range messages {
		files, err := unix.ParseUnixRights(&m)
		if err != nil {
			return 0, err
		}
		for _, f := range files {
			unix.CloseOnExec(f)
		}
		c.files = append(c.files, files...)
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return 0, fmt.Errorf("this process has descriptors for %d files of the memory only: %w", len(c.files), unix.EMFILE)
	}
	return status(answer[0]), nil
}

// closeFiles closes what the owner has sent; mappings stay.
func (c *connection) closeFiles() {
	for _, f := range c.files {
		_ = unix.Close(f)
	}
	c.files = nil
}

// end tells the owner that this process has nothing of the batch any more.
func (c *connection) end(word byte) {
	if c.ended.Swap(true) {
		return
	}
	c.closeFiles()
	_ = c.SetWriteDeadline(time.Now().Add(handshake))
	_, _ = c.Write([]byte{word})
	if word == failed { // the ticket can be opened again at once, if the owner has heard of it
		c.awaitOwner()
	}
	_ = c.Close()
}

// awaitOwner waits until the owner has closed its end, for half of the time that a call may take after its context.
func (c *connection) awaitOwner() {
	_ = c.CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	for {
		if n, err := c.Read(make([]byte, 1)); n == 0 || err != nil {
			return
		}
	}
}

// watch calls gone when the owner has ended before this process has.
func (c *connection) watch(gone func()) {
	_, _ = c.Read(make([]byte, 1))
	if !c.ended.Load() {
		gone()
	}
}
