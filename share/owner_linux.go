package share

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ownerList is the batches that this process shares, and the socket that openers connect to.
type ownerList struct {
	mu       sync.Mutex
	byToken  map[id]*Shared
	name     string
	listener *net.UnixListener // nil while nothing is shared
	pending  chan struct{}     // one value for each connection of the same user whose handshake is not complete
}

var owned = ownerList{byToken: map[id]*Shared{}, pending: make(chan struct{}, maxPending)}

// add registers a batch, and creates the socket if it is the first one. It calls ticket with the name of the socket.
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
		return fmt.Errorf("share: Share: a random number: %w", err)
	}
	name := socketName(random)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: "@" + name, Net: "unixpacket"})
	if err != nil {
		return fmt.Errorf("share: Share: %w", err)
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

// accept serves openers until the listener is closed. It refuses processes of other users before it reads anything, so that
// they do not count towards maxPending. Further connections stay in the backlog of the socket.
func (o *ownerList) accept(l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // for example, no descriptor is free
			continue
		}
		peer, err := peerOf(conn)
		// mutant: if err != nil {
		if err != nil || !sameUser(peer) {
			_, _ = conn.Write([]byte{byte(otherUser)}) // one byte does not block
			_ = conn.Close()
			continue
		}
		o.pending <- struct{}{}
		go o.serve(conn, peer.Pid)
	}
}

// serve is the owner's end of a connection. While the batch is open it holds a goroutine, but no thread.
func (o *ownerList) serve(conn *net.UnixConn, pid int32) {
	defer conn.Close()
	s := o.handshake(conn)
	<-o.pending // mutant: deleted
	if s == nil {
		return
	}
	var last [1]byte
	n, err := conn.Read(last[:])
	if errors.Is(err, unix.ECONNRESET) { // the opener did not read the reply; what it sent follows this error
		n, _ = conn.Read(last[:])
	}
	if n == 0 { // the opener did not close the connection itself
		// mutant: _ = pid
		awaitExit(conn, pid)
	}
	s.leave(n == 1 && last[0] == failed)
}

// handshake reads the request of an opener, and replies. It returns the batch that the opener then has, or nil.
func (o *ownerList) handshake(conn *net.UnixConn) *Shared {
	limit := handshakeTimeout
	if len(o.pending) > maxPending/2 { // mutant: never
		limit = busyTimeout
	}
	// mutant: _ = limit
	_ = conn.SetDeadline(time.Now().Add(limit))
	b := make([]byte, requestSize+1)
	n, err := conn.Read(b)
	if err != nil || n != requestSize || string(b[:len(requestText)]) != requestText {
		return nil
	}
	_ = conn.SetDeadline(time.Now().Add(handshakeTimeout))
	token, digest := id(b[len(requestText):]), [32]byte(b[len(requestText)+len(id{}):])
	s, reply := o.find(token), exhausted
	if s != nil {
		reply = s.admit(digest)
	}
	if reply != accepted {
		_, _ = conn.Write([]byte{byte(reply)})
		return nil
	}
	var rights []byte
	if len(s.held.blocks) > 0 {
		files := make([]int, len(s.held.blocks))
		for i, b := range s.held.blocks {
			files[i] = b.file
		}
		rights = unix.UnixRights(files...)
	}
	if _, _, err := conn.WriteMsgUnix([]byte{byte(accepted)}, rights, nil); err != nil {
		s.leave(true)
		return nil
	}
	_ = conn.SetDeadline(time.Time{}) // mutant: deleted
	return s
}
