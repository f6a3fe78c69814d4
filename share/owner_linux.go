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

// ownerList has the batches that this process shares, and the socket on which openers ask for them.
type ownerList struct {
	mu        sync.Mutex
	byToken   map[id]*Shared
	name      string
	listener  *net.UnixListener // nil while nothing is shared
	strangers chan struct{}     // has a value for each connection of this user that has not said hello
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
	name := socketName(random)
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

// accept serves openers until the listener is closed. What it bounds, processes of other users take nothing of: they
// are refused before anything is read. Beyond so many strangers the system keeps the connections.
func (o *ownerList) accept(l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(10 * time.Millisecond) // no descriptor is left, say
			continue
		}
		peer, err := peerOf(conn)
		// mutant: if err != nil {
		if err != nil || !sameUser(peer) {
			_, _ = conn.Write([]byte{byte(otherUser)}) // one byte does not wait
			_ = conn.Close()
			continue
		}
		o.strangers <- struct{}{}
		go o.serve(conn, peer.Pid)
	}
}

// serve is the owner's end of a connection. It holds a goroutine while the batch is open, and no thread.
func (o *ownerList) serve(conn *net.UnixConn, pid int32) {
	defer conn.Close()
	s := o.greet(conn)
	<-o.strangers // mutant: deleted
	if s == nil {
		return
	}
	var last [1]byte
	n, err := conn.Read(last[:])
	if errors.Is(err, unix.ECONNRESET) { // it did not read the answer; its last word is behind this error
		n, _ = conn.Read(last[:])
	}
	if n == 0 { // it ended without a word
		// mutant: _ = pid
		awaitDeath(conn, pid)
	}
	s.leave(n == 1 && last[0] == failed)
}

// greet reads the hello of an opener, and answers. It returns the batch that the opener has from then on.
func (o *ownerList) greet(conn *net.UnixConn) *Shared {
	limit := handshake
	if len(o.strangers) > maxStrangers/2 { // mutant: never
		limit = hurry
	}
	// mutant: _ = limit
	_ = conn.SetDeadline(time.Now().Add(limit))
	b := make([]byte, helloSize+1)
	n, err := conn.Read(b)
	if err != nil || n != helloSize || string(b[:len(helloText)]) != helloText {
		return nil
	}
	_ = conn.SetDeadline(time.Now().Add(handshake))
	token, digest := id(b[len(helloText):]), [32]byte(b[len(helloText)+len(id{}):])
	s, answer := o.find(token), used
	if s != nil {
		answer = s.admit(digest)
	}
	if answer != welcome {
		_, _ = conn.Write([]byte{byte(answer)})
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
	if _, _, err := conn.WriteMsgUnix([]byte{byte(welcome)}, rights, nil); err != nil {
		s.leave(true)
		return nil
	}
	_ = conn.SetDeadline(time.Time{}) // mutant: deleted
	return s
}
