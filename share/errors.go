package share

import (
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
)

// Errors that [Open] and [Share] wrap. No memory was touched when Open returns one of them.
var (
	// ErrBadTicket: the bytes are no ticket, are truncated, or were changed. It wraps arrow.ErrInvalid.
	ErrBadTicket = fmt.Errorf("bad ticket: %w", arrow.ErrInvalid)
	// ErrOtherHost: the ticket is of another machine, or was issued before this one was started.
	ErrOtherHost = errors.New("the ticket is of another machine; package flight sends batches between machines")
	// ErrOtherUser: the process at the other end belongs to another user.
	ErrOtherUser = errors.New("the other process belongs to another user; run both as one user, in one user namespace")
	// ErrOtherNetwork: the owner is in another network namespace, so that its socket cannot be reached from here.
	ErrOtherNetwork = errors.New("the owner of the batch is in another network namespace; run both containers in one (docker run --network container:NAME, or one pod)")
	// ErrSameProcess: the ticket was issued by this process, which has the batch.
	ErrSameProcess = errors.New("the ticket is of this process")
	// ErrOwnerGone: the process that has issued the ticket has ended, or shares nothing any more, or has shared nothing in
	// between.
	ErrOwnerGone = errors.New("the owner of the batch is gone")
	// ErrUsed: the ticket was opened as often as its owner allows, or its owner has closed it, and shares other batches.
	ErrUsed = errors.New("the ticket cannot be opened any more")
	// ErrNotShareable: other processes cannot open the memory of the batch. It wraps device.ErrNotSupported.
	ErrNotShareable = fmt.Errorf("no other process can open the memory: %w", device.ErrNotSupported)
)

// badTicket is the error for a field of a ticket.
func badTicket(field string, got, want any) error {
	return fmt.Errorf("share: ticket: %s = %v, want %v: %w", field, got, want, ErrBadTicket)
}

// absent is the error for an argument that is nil.
func absent(call, argument, want string) error {
	return fmt.Errorf("share: %s: %s = nil, want %s: %w", call, argument, want, arrow.ErrInvalid)
}
