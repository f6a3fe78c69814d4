// Package flightticket passes the batches of an Arrow Flight stream as tickets of package share, in place of bodies, between
// two processes of one user on one machine. The processes find each other by a handshake in the headers of the call; a
// [Sender] issues the tickets of a stream, and a [Receiver] opens them.
package flightticket

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc/metadata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/flightdata"
	"github.com/arrowdevice/arrowdevice/share"
)

// ResponseTime is how long the first batch of a client waits for the response headers, which a server may not send before
// it has received a message. Tests on loaded machines set more.
var ResponseTime = 100 * time.Millisecond

// maxUnopened is how many tickets a sender has issued that were not opened.
const maxUnopened = 2

// Stream is a stream of gRPC, of a client or a server.
type Stream interface{ Context() context.Context }

// Memory is the memory to which batches are copied that other processes cannot open. Either may be nil.
type Memory struct {
	GPU  device.Device // shareable memory
	Host memory.Allocator
}

// Sender issues the tickets of one stream. A nil Sender issues none. Issue belongs to the goroutine that reads batches, the
// other methods to the one that sends them.
type Sender struct {
	copies  Memory
	maxSize int // of a message

	peer      atomic.Pointer[localPeer]
	responded chan struct{} // closed when peer is known; nil: from the start
	waited    sync.Once
	unopened  []*share.Shared // tickets that were sent and may not have been opened, oldest first
}

// NewSender returns the sender of a stream. A server knows its peer from the call; for a client a goroutine waits for the
// response headers, until the call ends.
func NewSender(stream Stream, copies Memory, maxSize int) *Sender {
	s := &Sender{copies: copies, maxSize: maxSize}
	switch stream := stream.(type) {
	case interface{ SetHeader(metadata.MD) error }:
		s.peer.Store(clientOf(stream.(Stream).Context()))
	case interface{ Header() (metadata.MD, error) }:
		s.responded = make(chan struct{})
		go func() {
			defer close(s.responded)
			if md, err := stream.Header(); err == nil {
				s.peer.Store(parsePeer(md, processID()))
			}
		}()
	}
	return s
}

// localPeer returns the peer, or nil if it does not accept tickets, or has not responded yet. The first call waits.
func (s *Sender) localPeer(ctx context.Context) *localPeer {
	s.waited.Do(func() {
		if s.responded == nil {
			return
		}
		timer := time.NewTimer(ResponseTime)
		defer timer.Stop()
		select {
		// mutant: default:
		case <-s.responded:
		case <-timer.C: // mutant: deleted
		case <-ctx.Done():
		}
	})
	return s.peer.Load()
}

// Ticket is an issued ticket that was not sent.
type Ticket struct {
	Message *flightdata.Outgoing
	shared  *share.Shared
}

// Withdraw ends the ticket.
func (t *Ticket) Withdraw() { _ = t.shared.Close() }

// Issue returns a ticket for the batch, or for a copy of it. It returns nil if the batch must be sent as a body. An error
// that would also occur then is ignored here.
func (s *Sender) Issue(ctx context.Context, b *cdevice.RecordBatch) *Ticket {
	if s == nil {
		return nil
	}
	to := s.localPeer(ctx)
	if to == nil || !to.canOpen(b) {
		return nil
	}
	shared := s.share(ctx, b)
	if shared == nil {
		return nil
	}
	data := append([]byte(mark(to.id)), shared.Ticket()...)
	m, err := flightdata.NewOutgoing(&arrowflight.FlightData{AppMetadata: data}, nil)
	if err != nil || m.Size() > s.maxSize { // mutant: never
		_ = shared.Close() // mutant: deleted
		return nil
	}
	return &Ticket{m, shared}
}

func (s *Sender) share(ctx context.Context, b *cdevice.RecordBatch) *share.Shared {
	if shared, err := share.Share(ctx, b); err == nil {
		return shared
	}
	copied, err := s.copy(ctx, b)
	if copied == nil || err != nil {
		return nil
	}
	defer copied.Release()
	shared, err := share.Share(ctx, copied)
	switch { // where a copy cannot be opened either, further ones would be in vain
	case err == nil:
		return shared
	case !errors.Is(err, device.ErrNotSupported):
	case ReadInPlace(copied.DeviceID().Type):
		s.copies.Host = nil
	default:
		s.copies.GPU = nil
	}
	return nil
}

// copy copies a batch to memory that can be shared, or returns nil if there is none.
func (s *Sender) copy(ctx context.Context, b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
	switch {
	case ReadInPlace(b.DeviceID().Type) && s.copies.Host != nil:
		return copyToHost(ctx, b, s.copies.Host)
	case !ReadInPlace(b.DeviceID().Type) && s.copies.GPU != nil && s.copies.GPU.ID() == b.DeviceID():
		return b.CopyTo(ctx, s.copies.GPU)
	}
	return nil, nil
}

// Sent records that the ticket is about to be sent, and waits until at most maxUnopened tickets are not opened.
func (s *Sender) Sent(ctx context.Context, t *Ticket) error {
	s.unopened = append(s.unopened, t.shared)
	// mutant: return s.wait(ctx, 1<<30)
	return s.wait(ctx, maxUnopened)
}

// WaitOpened waits until all tickets were opened.
func (s *Sender) WaitOpened(ctx context.Context) error {
	if s == nil {
		return nil
	}
	return s.wait(ctx, 0)
}

// wait waits until at most n tickets are not opened. It closes opened ones: their openers hold the batches.
func (s *Sender) wait(ctx context.Context, n int) error {
	for len(s.unopened) > n {
		if err := s.unopened[0].WaitOpened(ctx); err != nil { // mutant: deleted
			return err
		}
		_ = s.unopened[0].Close()
		s.unopened = s.unopened[1:]
	}
	return nil
}

// Close withdraws the tickets that were not opened.
func (s *Sender) Close() {
	if s == nil {
		return
	}
	for _, shared := range s.unopened { // mutant: deleted
		_ = shared.Close()
	}
	s.unopened = nil
}
