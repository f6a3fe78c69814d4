package main

import (
	"context"

	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/flight"
)

// ours is the side of package flight.
type ours struct{ *peer }

func (o *ours) to(l load) []flight.ReceiveOption {
	if l.GPU {
		return []flight.ReceiveOption{flight.WithTarget(o.gpu), flight.WithAllocator(o.mem)}
	}
	return nil
}

func (o *ours) get(ctx context.Context, client arrowflight.Client, l load) error {
	opts := []flight.GetOption{flight.WithMaxMessageSize(maxMessage)}
	for _, opt := range o.to(l) {
		opts = append(opts, opt)
	}
	r, err := flight.DoGet(ctx, client, &arrowflight.Ticket{Ticket: l.encoded()}, opts...)
	if err != nil {
		return err
	}
	return o.read(ctx, r)
}

func (o *ours) put(ctx context.Context, client arrowflight.Client, l load) error {
	r := o.source(l)
	defer r.Release()
	return flight.DoPut(l.mark(ctx), client, &arrowflight.FlightDescriptor{Cmd: l.encoded()}, r, o.from()...)
}

func (o *ours) from() []flight.PutOption {
	return []flight.PutOption{flight.WithMaxMessageSize(maxMessage), flight.WithAllocator(o.mem)}
}

func (o *ours) send(stream arrowflight.FlightService_DoGetServer, l load) error {
	r := o.source(l)
	defer r.Release()
	return flight.Send(stream, r, flight.WithMaxMessageSize(maxMessage), flight.WithAllocator(o.mem))
}

func (o *ours) receive(stream arrowflight.FlightService_DoPutServer) error {
	r, _, err := flight.Receive(stream, o.to(load{GPU: toGPU(stream.Context())})...)
	if err != nil {
		return err
	}
	return o.read(stream.Context(), r)
}

// read reads all batches, and waits for the last copy.
func (*ours) read(ctx context.Context, r *cdevice.RecordReader) error {
	defer r.Release()
	var last *cdevice.RecordBatch
	defer func() {
		if last != nil {
			last.Release()
		}
	}()
	for batch, err := range r.All() {
		if err != nil {
			return err
		}
		if last != nil {
			last.Release()
		}
		batch.Retain()
		last = batch
	}
	if last != nil {
		return last.Synchronize(ctx)
	}
	return nil
}
