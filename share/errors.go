package share

import (
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
)

// Errors that [Open] and [Share] wrap. When Open returns one of them, it has touched no memory.
var (
	// ErrBadTicket: the bytes are not a ticket, or were truncated or changed. It wraps arrow.ErrInvalid.
	ErrBadTicket = fmt.Errorf("bad ticket: %w", arrow.ErrInvalid)
	// ErrOtherHost: the ticket is from another machine, or from before the last boot of this one.
	ErrOtherHost = errors.New("the ticket is of another machine; package flight sends batches between machines")
	// ErrOtherUser: the process at the other end belongs to another user.
	ErrOtherUser = errors.New("the other process belongs to another user; run both as one user, in one user namespace")
	// ErrOtherNetwork: the owner is in another network namespace, so its socket cannot be reached.
	ErrOtherNetwork = errors.New("the owner of the batch is in another network namespace; run both containers in one (docker run --network container:NAME, or one pod)")
	// ErrSameProcess: this process issued the ticket, and has the batch.
	ErrSameProcess = errors.New("the ticket is of this process: use the batch that it shared")
	// ErrOwnerGone: the issuing process has exited, or has stopped sharing since it issued the ticket. So it is after the last
	// opening of its only ticket ([WithOpeners]), and after its Close.
	ErrOwnerGone = errors.New("the owner of the batch has exited, or shares nothing any more, as when its only ticket was opened as often as it may be (WithOpeners)")
	// ErrUsed: the ticket was opened as often as its owner allows, or was closed, and its owner still shares other batches.
	ErrUsed = errors.New("the ticket was closed, or opened as often as it may be (WithOpeners)")
	// ErrNotShareable: other processes cannot open the memory of the batch, or the schema of a ticket has no place for a type.
	// It wraps device.ErrNotSupported.
	ErrNotShareable = fmt.Errorf("no other process can open the batch: %w", device.ErrNotSupported)
)

// badTicket is the error for a field of a ticket.
func badTicket(field string, got, want any) error {
	return fmt.Errorf("share: ticket: %s = %v, want %v: %w", field, got, want, ErrBadTicket)
}
