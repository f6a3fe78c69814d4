package main

import (
	"context"
	"errors"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// plain is the side of arrow-go's package flight, with a copy of each batch from and to the device.
type plain struct{ *peer }

func (p *plain) get(ctx context.Context, client arrowflight.Client, l load) error {
	stream, err := client.DoGet(ctx, &arrowflight.Ticket{Ticket: l.encoded()})
	if err != nil {
		return err
	}
	return p.read(ctx, stream, l.GPU)
}

func (p *plain) receive(stream arrowflight.FlightService_DoPutServer) error {
	return p.read(stream.Context(), stream, toGPU(stream.Context()))
}

// read reads all batches, copies them to the GPU, and waits for the last copy.
func (p *plain) read(ctx context.Context, stream arrowflight.DataStreamReader, gpu bool) error {
	r, err := arrowflight.NewRecordReader(stream)
	if err != nil {
		return err
	}
	defer r.Release()
	var last *cdevice.RecordBatch
	defer func() {
		if last != nil {
			last.Release()
		}
	}()
	for r.Next() {
		if !gpu {
			continue
		}
		there, err := cdevice.CopyToDevice(ctx, r.RecordBatch(), p.gpu)
		if err != nil {
			return err
		}
		if last != nil {
			last.Release()
		}
		last = there
	}
	if last != nil {
		err = last.Synchronize(ctx)
	}
	return errors.Join(err, r.Err())
}

func (p *plain) put(ctx context.Context, client arrowflight.Client, l load) error {
	stream, err := client.DoPut(l.mark(ctx))
	if err != nil {
		return err
	}
	b := p.batch(ctx, l)
	w := arrowflight.NewRecordWriter(stream, ipc.WithSchema(b.Schema()))
	w.SetFlightDescriptor(&arrowflight.FlightDescriptor{Cmd: l.encoded()})
	if err := p.write(ctx, w, b, l); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if _, err := stream.Recv(); err != io.EOF {
		return err
	}
	return nil
}

func (p *plain) send(stream arrowflight.FlightService_DoGetServer, l load) error {
	b := p.batch(stream.Context(), l)
	return p.write(stream.Context(), arrowflight.NewRecordWriter(stream, ipc.WithSchema(b.Schema())), b, l)
}

// write writes the batch again and again, copied each time from the GPU, or viewed once.
func (p *plain) write(ctx context.Context, w *arrowflight.Writer, b *cdevice.RecordBatch, l load) error {
	read := b.HostView
	if l.GPU {
		read = func(ctx context.Context) (arrow.RecordBatch, error) { return b.CopyToHost(ctx, p.mem) }
	}
	for range l.Batches {
		rec, err := read(ctx)
		if err == nil {
			err = w.Write(rec)
			rec.Release()
		}
		if err != nil {
			return err
		}
	}
	return w.Close()
}
