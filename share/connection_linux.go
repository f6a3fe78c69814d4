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

// dial connects to the owner. It retries while the backlog of the socket is full, since a connect of such a socket does not
// block.
func dial(ctx context.Context, socket string) (conn net.Conn, err error) {
	var dialer net.Dialer
	for end := time.Now().Add(answerTimeout); ; {
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

// connect connects to the owner, and requests the batch.
func connect(ctx context.Context, t Ticket, c *content) (_ *connection, err error) {
	dialed, err := dial(ctx, c.socket)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, fmt.Errorf("share: Open: %w", ctx.Err())
	case errors.Is(err, unix.EAGAIN):
		return nil, fmt.Errorf("share: Open: the owner does not answer: its backlog of openers is full (%w)", err)
	case errors.Is(err, unix.ECONNREFUSED):
		return nil, fmt.Errorf("share: Open: %w (%w)", ErrOwnerGone, err)
	default: // for example, no descriptor is free
		return nil, fmt.Errorf("share: Open: %w", err)
	}
	conn := &connection{UnixConn: dialed.(*net.UnixConn)}
	// mutant: if peer, err := peerOf(conn.UnixConn); err != nil || peer == nil {
	if peer, err := peerOf(conn.UnixConn); err != nil || !sameUser(peer) { // before anything of the ticket is sent
		_ = conn.Close()
		return nil, fmt.Errorf("share: Open: %w", cmp.Or(err, ErrOtherUser))
	}
	defer func() {
		if err != nil {
			conn.end(failed)
		}
	}()
	_ = conn.SetDeadline(time.Now().Add(answerTimeout))
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = conn.SetDeadline(time.Unix(1, 0))
	})
	halt := sync.OnceFunc(func() {
		if !stop() {
			<-interrupted // its deadline must not replace a later one
		}
	})
	defer halt()
	reply, err := conn.request(t, c)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("share: Open: %w", ctx.Err())
	case err != nil:
		return nil, fmt.Errorf("share: Open: %w", err)
	}
	switch reply {
	case accepted:
	case exhausted:
		return nil, fmt.Errorf("share: Open: %w", ErrUsed)
	case mismatched:
		return nil, fmt.Errorf("share: Open: this is not the ticket that the owner has issued: %w", ErrBadTicket)
	case otherUser:
		return nil, fmt.Errorf("share: Open: %w", ErrOtherUser)
	default:
		return nil, fmt.Errorf("share: Open: the owner replied %d: %w", reply, ErrBadTicket)
	}
	halt()
	_ = conn.SetDeadline(time.Time{})
	return conn, nil
}

// request sends the request for a batch, and reads the reply and the files.
func (c *connection) request(t Ticket, of *content) (status, error) {
	_, refused := c.Write(requestFor(t, of)) // fails if the owner has already replied and closed its end
	reply, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4*maxFiles))
	n, space, flags, _, err := c.ReadMsgUnix(reply, rights)
	if errors.Is(err, unix.ECONNRESET) { // the owner did not read the request; its reply follows this error
		n, space, flags, _, err = c.ReadMsgUnix(reply, rights)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, fmt.Errorf("the owner does not answer: %w", err)
	}
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%w (%w)", ErrOwnerGone, cmp.Or(refused, err, errors.New("the owner closed the connection")))
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
		return 0, fmt.Errorf("this process has free descriptors for only %d files of the memory: %w", len(c.files), unix.EMFILE)
	}
	return status(reply[0]), nil
}

// closeFiles closes the files that the owner has sent. Their mappings stay.
func (c *connection) closeFiles() {
	for _, f := range c.files {
		_ = unix.Close(f)
	}
	c.files = nil
}

// end tells the owner that this process no longer uses the batch, and closes the connection. outcome is released or failed.
func (c *connection) end(outcome byte) {
	if c.ended.Swap(true) {
		return
	}
	c.closeFiles() // mutant: deleted
	_ = c.SetWriteDeadline(time.Now().Add(handshakeTimeout))
	_, _ = c.Write([]byte{outcome})
	if outcome == failed { // the ticket can be opened again as soon as the owner knows
		c.awaitOwner()
	}
	_ = c.Close()
}

// awaitOwner waits until the owner has closed its end, for at most 50 ms: half of the time that a call may take after the end of
// its context.
func (c *connection) awaitOwner() {
	_ = c.CloseWrite()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	for {
		if n, err := c.Read(make([]byte, 1)); n == 0 || err != nil {
			return
		}
	}
}

// watch calls gone if the owner closes the connection before this process does.
func (c *connection) watch(gone func()) {
	_, _ = c.Read(make([]byte, 1))
	if !c.ended.Load() { // mutant: always
		gone()
	}
}
