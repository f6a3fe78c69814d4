package flightticket

import (
	"bytes"
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/flightdata"
	"github.com/arrowdevice/arrowdevice/share"
)

// Receiver opens the tickets of one stream. A nil Receiver finds none.
type Receiver struct {
	Target device.Device    // where batches are wanted; nil: in memory of the CPU
	Host   memory.Allocator // of copies to the CPU
}

// Find returns the ticket that a message carries, or nil.
func (r *Receiver) Find(m *flightdata.Incoming) share.Ticket {
	if r == nil || len(m.DataHeader) > 0 {
		return nil
	}
	ticket, ok := bytes.CutPrefix(m.AppMetadata, ownMark())
	// mutant: if !ok && len(ticket) < len(ownMark()) {
	if !ok {
		return nil
	}
	return share.Ticket(ticket)
}

// OpenError is the error of a ticket that could not be opened.
type OpenError struct{ error }

// Unwrap returns the cause.
func (e OpenError) Unwrap() error { return e.error }

// Open opens the ticket and checks the batch, of which it returns a copy if it is not in the receiver's memory. The error is
// an OpenError if the ticket cannot be opened.
func (r *Receiver) Open(ctx context.Context, t share.Ticket, check func(*cdevice.RecordBatch) error) (*cdevice.RecordBatch, error) {
	b, err := share.Open(ctx, t)
	if err != nil {
		return nil, OpenError{fmt.Errorf("flight: the ticket of a batch: %w", err)}
	}
	defer b.Release()
	if err := check(b); err != nil {
		return nil, err
	}
	want := device.CPUDevice()
	if r.Target != nil {
		want = r.Target
	}
	switch {
	case b.DeviceID() == want.ID() && !isShareable(want): // memory of another process cannot be shared again
		b.Retain()
		return b, nil
	case r.Target == nil:
		return copyToHost(ctx, b, r.Host)
	}
	return b.CopyTo(ctx, r.Target)
}

// isShareable reports whether other processes can open the memory of a device.
func isShareable(dev device.Device) bool {
	kinds, ok := dev.(device.MemoryKinds)
	return ok && kinds.MemoryKind() == device.ShareableMemory
}

// ReadInPlace reports whether the CPU reads memory of the type where it is, pinned or not. Managed memory would migrate, so
// it is copied.
func ReadInPlace(t device.Type) bool {
	return t.CPUAccessible() && t != device.CUDAManaged
}

func copyToHost(ctx context.Context, b *cdevice.RecordBatch, mem memory.Allocator) (*cdevice.RecordBatch, error) {
	rec, err := b.CopyToHost(ctx, mem)
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	return cdevice.WrapRecordBatch(rec, device.CPUDevice())
}
