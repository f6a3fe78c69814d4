package share

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// Option is an option of [Share]. A nil option does nothing.
type Option func(*options)

type options struct{ openers int }

// WithOpeners lets the ticket be opened n times, at least once; without it, once. An opener that has failed
// to open the memory does not count.
func WithOpeners(n int) Option { return func(o *options) { o.openers = n } }

// Shared is a batch that other processes can open. It holds the batch, until it can be opened no more and every
// opener has released its own: then the batch is released, on any goroutine.
type Shared struct {
	ticket Ticket
	token  id
	held   *source

	mu     sync.Mutex
	left   int // how often it can be opened
	open   int // openers
	told   bool
	opened chan struct{}
	closed bool
	ended  bool
	done   chan struct{} // closed when the batch was released
}

// Share issues a ticket for the batch, which stays the caller's: the ticket holds a reference of its own. It copies
// nothing. Of memory of a GPU, the ticket has an event behind the batch's own, which openers wait for; of host memory
// with an event, Share waits for it until ctx is done.
//
// A batch in memory that other processes cannot open is an error that names the column and wraps
// [ErrNotShareable]; see the package comment.
func Share(ctx context.Context, batch *cdevice.RecordBatch, opts ...Option) (*Shared, error) {
	if ctx == nil {
		return nil, absent("issue", "ctx", "a context")
	}
	if batch == nil {
		return nil, absent("issue", "batch", "a batch")
	}
	o := options{openers: 1}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	if o.openers < 1 {
		return nil, fmt.Errorf("share: WithOpeners(%d), want at least 1: %w", o.openers, arrow.ErrInvalid)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("share: %w", err)
	}
	held, c, err := read(ctx, batch)
	if err != nil {
		return nil, err
	}
	s := &Shared{held: held, left: o.openers, opened: make(chan struct{}), done: make(chan struct{})}
	if err := s.issue(c); err != nil {
		return nil, errors.Join(err, held.release())
	}
	return s, nil
}

// issue makes the ticket, and lets openers in.
func (s *Shared) issue(c *content) (err error) {
	if _, err := rand.Read(s.token[:]); err != nil {
		return fmt.Errorf("share: a random number: %w", err)
	}
	c.token, c.process = s.token, thisProcess
	if c.boot, err = bootID(); err != nil {
		return err
	}
	c.network, c.pids = namespace("net"), namespace("pid")
	return owned.add(s, func(socket string) error {
		c.socket = socket
		s.ticket, err = c.encode()
		return err
	})
}

// Ticket returns the ticket, which the caller must not change.
func (s *Shared) Ticket() Ticket { return s.ticket }

// Close withdraws the ticket: it cannot be opened any more. The batch is released when every opener has
// released its own: now, if there is none. A second Close is an error.
func (s *Shared) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errors.New("share: closed twice")
	}
	s.closed, s.left = true, 0
	s.taken()
	s.unlock()
	return nil
}

// Wait returns when the batch was released, or ctx is done, which is an error.
func (s *Shared) Wait(ctx context.Context) error {
	if ctx == nil {
		return absent("wait", "ctx", "a context")
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Errorf("share: wait for %d openers, and the ticket can be opened %d more times: %w", s.open, s.left, ctx.Err())
	}
}

// WaitOpened returns when the ticket was opened as often as it can be, or closed, or ctx is done, which is an
// error. An opener that then fails to open the memory changes nothing of that.
func (s *Shared) WaitOpened(ctx context.Context) error {
	if ctx == nil {
		return absent("wait", "ctx", "a context")
	}
	select {
	case <-s.opened:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("share: wait until the ticket is opened: %w", ctx.Err())
	}
}

// taken tells that nobody can open the ticket any more, the first time. s.mu is locked.
func (s *Shared) taken() {
	if s.left == 0 && !s.told {
		s.told = true
		close(s.opened)
	}
}

// Openers returns how many processes have the batch open.
func (s *Shared) Openers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// admit lets an opener with this ticket in, who must leave.
func (s *Shared) admit(digest [32]byte) status {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ticket.digest() != digest: // mutant: never
		return changed
	case s.left == 0:
		return used
	}
	s.left--
	s.open++
	s.taken()
	return welcome
}

// leave ends an opener. One that has failed to open the memory gives the opening back.
func (s *Shared) leave(failed bool) {
	s.mu.Lock()
	s.open--
	if failed && !s.closed { // mutant: never
		s.left++
	}
	s.unlock()
}

// unlock unlocks s.mu, and releases the batch if nobody can open it any more and nobody has it open.
func (s *Shared) unlock() {
	// mutant: last := s.open == 0 && !s.ended
	// mutant: last := s.left == 0 && !s.ended
	last := s.left == 0 && s.open == 0 && !s.ended
	s.ended = s.ended || last
	s.mu.Unlock()
	if !last {
		return
	}
	owned.remove(s)
	// mutant: deleted
	_ = s.held.release() // an event that is not destroyed is tried again by its device
	close(s.done)
}
