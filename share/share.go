package share

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/argument"
)

// Option is an option of [Share].
type Option func(*options)

type options struct{ openers int }

// WithOpeners allows the ticket to be opened n times, at least once; the default is once. An opener that fails to open the
// memory does not count.
func WithOpeners(n int) Option { return func(o *options) { o.openers = n } }

// Shared is a batch offered to other processes. It retains the batch until the ticket was closed, or opened as often as
// [WithOpeners] allows, and every opener has released its batch. It then releases the batch, on any goroutine.
type Shared struct {
	ticket Ticket
	token  id
	held   *source

	mu       sync.Mutex
	left     int           // how often the ticket can still be opened
	open     int           // processes that have the batch open
	opened   chan struct{} // closed when left becomes 0
	closed   bool          // Close was called
	released bool          // or is being released
	done     chan struct{} // closed when the batch was released
}

// Share issues a ticket for the batch. It retains the batch, which stays the caller's, and copies nothing. For memory of a
// GPU, the ticket has an event behind that of the batch, which openers wait for. For host memory with an event, Share waits
// for the event, until ctx ends. The ticket has the schema and the Metadata of the batch.
//
// If other processes cannot open the memory of a column, the error names the column and wraps [ErrNotShareable]; see the
// package comment.
func Share(ctx context.Context, batch *cdevice.RecordBatch, opts ...Option) (*Shared, error) {
	if err := argument.Context("share: Share", ctx); err != nil {
		return nil, err
	}
	if batch == nil {
		return nil, argument.Nil("share: Share", "batch", "a batch")
	}
	o := options{openers: 1}
	if err := argument.Apply("share: Share", &o, opts); err != nil {
		return nil, err
	}
	if o.openers < 1 {
		return nil, fmt.Errorf("share: Share: WithOpeners(%d), want at least 1: %w", o.openers, arrow.ErrInvalid)
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("share: Share: %w", err)
	}
	if errSystem != nil {
		return nil, fmt.Errorf("share: Share: %w", errSystem)
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

// issue makes the ticket, and admits openers.
func (s *Shared) issue(c *content) (err error) {
	if _, err := rand.Read(s.token[:]); err != nil {
		return fmt.Errorf("share: Share: a random number: %w", err)
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

// check returns an error for the zero value, whose channels are nil.
func (s *Shared) check(method string) error {
	if s.done == nil {
		return fmt.Errorf("share: Shared.%s: the Shared was not made by Share: %w", method, arrow.ErrInvalid)
	}
	return nil
}

// Close withdraws the ticket, which then cannot be opened. The batch is released once every opener has released its
// batch. Close may be called twice. Its only error is that of a Shared that [Share] has not made.
func (s *Shared) Close() error {
	if err := s.check("Close"); err != nil {
		return err
	}
	s.mu.Lock()
	s.closed = true
	s.setLeft(0)
	s.unlock()
	return nil
}

// Wait waits until the batch was released. The end of ctx is an error; Wait may be called again.
func (s *Shared) Wait(ctx context.Context) error {
	if err := cmp.Or(argument.Context("share: Wait", ctx), s.check("Wait")); err != nil {
		return err
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		return fmt.Errorf("share: Wait: for %d openers, and the ticket can be opened %d more times: %w", s.open, s.left, ctx.Err())
	}
}

// WaitOpened waits until the ticket was closed, or opened as often as [WithOpeners] allows, even if such an opener then
// fails to open the memory. The end of ctx is an error.
func (s *Shared) WaitOpened(ctx context.Context) error {
	if err := cmp.Or(argument.Context("share: WaitOpened", ctx), s.check("WaitOpened")); err != nil {
		return err
	}
	select {
	case <-s.opened:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("share: WaitOpened: until the ticket is opened: %w", ctx.Err())
	}
}

// setLeft sets how often the ticket can still be opened. s.mu is locked.
func (s *Shared) setLeft(n int) {
	s.left = n
	if n == 0 && !isClosed(s.opened) {
		close(s.opened)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Openers returns the number of processes that have the batch open.
func (s *Shared) Openers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// admit counts an opener with this ticket until leave.
func (s *Shared) admit(digest [32]byte) status {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ticket.digest() != digest: // mutant: never
		return mismatched
	case s.left == 0:
		return exhausted
	}
	s.open++
	s.setLeft(s.left - 1)
	return accepted
}

// leave ends admit. An opener that failed to open the memory does not count, unless the ticket was closed since.
func (s *Shared) leave(failed bool) {
	s.mu.Lock()
	s.open--
	if failed && !s.closed { // mutant: never
		s.left++
	}
	s.unlock()
}

// unlock unlocks s.mu, and releases the batch if no process has it open or can open it.
func (s *Shared) unlock() {
	// mutant: last := s.open == 0 && !s.released
	// mutant: last := s.left == 0 && !s.released
	last := s.left == 0 && s.open == 0 && !s.released
	s.released = s.released || last
	s.mu.Unlock()
	if !last {
		return
	}
	owned.remove(s)
	// mutant: deleted
	_ = s.held.release() // the device retries to destroy an event
	close(s.done)
}
