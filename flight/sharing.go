package flight

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/share"
)

// WithSharing makes batches go as tickets of package share, in place of bodies, to another process of this user on
// this machine that has the option too: the answers to [DoGet] and [DoExchange], and what [DoPut] and DoExchange
// send. Nothing is said of it over a connection that leaves the machine: it must be a Unix socket, the loopback interface, or
// have one address at both ends. Any other peer gets bytes, and so does a process that does not open memory of the batch's GPU: its
// [WithDevice] is not a GPU, or package share finds no driver there.
//
// Batches that package share cannot share are copied: those in memory of the CPU to mem, a share.Allocator, and
// those of a GPU to memory of dev, a device.Sharer such as a cudaalloc.Device, that other processes can open. Without mem or dev, which may be
// nil, or if the copy fails, they are sent as bytes, and so is a batch whose ticket is larger than
// [WithMaxMessageSize]. An end that only receives needs neither.
//
// The sender holds a batch until the receiver has released its own. It waits while as many tickets as
// [WithPrefetch] says, and at least one, were not opened, and at its end until all were; those that were
// opened are memory in use of the receiver. The end of the stream's context ends the wait, and
// withdraws the tickets that were not opened.
//
// DoPut and DoExchange wait for the server's answer before their first batch, 100 ms at most: a server that
// answers later gets bytes until then. [Receive] sends the headers of the server's answer at once.
//
// DoGet asks again, for bytes, if it cannot open the first ticket before any batch; the server must then be able to
// answer the same ticket of Flight twice. Any other ticket that the receiver cannot open is its stream's error, with
// the code FailedPrecondition.
func WithSharing(dev device.Device, mem memory.Allocator) Option {
	return func(o *options) {
		o.sharing = &sharing{}
		if !argument.IsNil(dev) {
			gpu, ok := dev.(device.Sharer)
			if !ok {
				o.refuse(&Error{"WithSharing", fmt.Sprintf("dev is a %T, whose memory no other process can open", dev), device.ErrNotSupported})
				return
			}
			var err error
			if o.sharing.dev, err = gpu.WithMemory(device.ShareableMemory); err != nil {
				o.refuse(&Error{"WithSharing", "dev", err})
			}
		}
		if !argument.IsNil(mem) {
			o.sharing.mem = mem
		}
	}
}

// sharing has the memory that batches are copied to, either nil. The one goroutine that sends changes it.
type sharing struct {
	dev device.Device
	mem memory.Allocator
}

// share issues a ticket for a batch, or for a copy of it. It returns nil if the batch must be sent as bytes: an error
// that has another cause than the sharing is that of the bytes, too.
func (s *sharing) share(ctx context.Context, b *cdevice.RecordBatch) *share.Shared {
	if shared, err := share.Share(ctx, b); err == nil {
		return shared
	}
	there, err := s.copy(ctx, b)
	if there == nil || err != nil {
		return nil
	}
	defer there.Release()
	shared, err := share.Share(ctx, there)
	if err != nil {
		s.useless(there, err)
		return nil
	}
	return shared
}

// useless ends copies to memory that other processes cannot open: they would all be in vain.
func (s *sharing) useless(there *cdevice.RecordBatch, err error) {
	switch {
	case !errors.Is(err, device.ErrNotSupported):
	case accessible(there):
		s.mem = nil
	default:
		s.dev = nil
	}
}

// copy copies a batch to memory that can be shared. It returns nil if there is none.
func (s *sharing) copy(ctx context.Context, b *cdevice.RecordBatch) (there *cdevice.RecordBatch, err error) {
	switch {
	case accessible(b) && s.mem != nil:
		there, err = copyToHost(ctx, b, s.mem)
	case !accessible(b) && s.dev != nil && s.dev.ID() == b.DeviceID():
		there, err = b.CopyTo(ctx, s.dev)
	}
	if there == nil || err != nil || b.Metadata().Len() == 0 {
		return there, err
	}
	defer there.Release()
	return there.WithMetadata(b.Metadata()), nil
}

func copyToHost(ctx context.Context, b *cdevice.RecordBatch, mem memory.Allocator) (*cdevice.RecordBatch, error) {
	rec, err := b.CopyToHost(ctx, mem)
	if err != nil {
		return nil, err
	}
	defer rec.Release()
	return cdevice.WrapRecordBatch(rec, device.CPUDevice())
}
