package share

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

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
		if deadline, ok := ctx.Deadline(); err != nil && ok && !time.Now().Before(deadline) {
			<-ctx.Done() // the dialer's deadline is the same, and may come first
		}
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
	case errors.Is(err, unix.ECONNREFUSED):
		return nil, fmt.Errorf("share: open: %w (%w)", ErrOwnerGone, err)
	default: // no descriptor is left, say
		return nil, fmt.Errorf("share: open: %w", err)
	}
	conn := &connection{UnixConn: dialed.(*net.UnixConn)}
	// mutant: if peer, err := peerOf(conn.UnixConn); err != nil || peer == nil {
	if peer, err := peerOf(conn.UnixConn); err != nil || !sameUser(peer) { // which learns nothing of the ticket
		_ = conn.Close()
		return nil, fmt.Errorf("share: open: %w", cmp.Or(err, ErrOtherUser))
	}
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
			<-interrupted // its deadline must not replace the later ones
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
	digest := t.digest()
	hello := append(append([]byte(helloText), of.token[:]...), digest[:]...)
	_, refused := c.Write(hello) // by an owner that has answered, and closed its end
	answer, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4*maxFiles))
	n, space, flags, _, err := c.ReadMsgUnix(answer, rights)
	if errors.Is(err, unix.ECONNRESET) { // it has not read the hello; its answer is behind this error
		n, space, flags, _, err = c.ReadMsgUnix(answer, rights)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, fmt.Errorf("the owner does not answer: %w", err)
	}
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%w (%w)", ErrOwnerGone, cmp.Or(refused, err, errors.New("it says nothing")))
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
	c.closeFiles() // mutant: deleted
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
	if !c.ended.Load() { // mutant: always
		gone()
	}
}
