package flight

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync/atomic"

	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/argument"
)

// DoGet asks for a ticket, and returns the batches of the answer: in memory of [WithDevice], or of the
// CPU. It waits for the schema. Everything said of [Receive] holds.
//
// The last Release of the reader cancels the call, even while a goroutine waits for its next batch. The
// end of ctx cancels it too.
func DoGet(ctx context.Context, client arrowflight.FlightServiceClient, ticket *arrowflight.Ticket, opts ...Option) (*cdevice.RecordReader, error) {
	o, err := checkClient(ctx, client, opts)
	if err != nil {
		return nil, err
	}
	if ticket == nil {
		return nil, absent("ticket", "a ticket")
	}
	call, cancel := context.WithCancel(ctx)
	first, endFirst := context.WithCancel(call)
	stream, err := client.DoGet(first, ticket, o.asking()...)
	if err != nil {
		endFirst()
		cancel()
		return nil, withStatus(err)
	}
	again := func() (Stream, error) {
		endFirst()
		return client.DoGet(call, ticket, o.callOptions()...)
	}
	end := func() { endFirst(); cancel() }
	r, _, err := receive(stream, o, call, o.takesTickets(), end, nil, again)
	return r, err
}

func checkClient(ctx context.Context, client arrowflight.FlightServiceClient, opts []Option) (*options, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	if argument.IsNil(client) {
		return nil, absent("client", "a client of Arrow Flight")
	}
	return newOptions(opts)
}

// DoPut sends the batches that are left in r, as [Send] does, and waits until the server has taken them
// and has returned. [WithPutResults] takes its answers. The server's error is the result. A server may
// return before the end of r: without an error, it wants no more.
//
// r stays the caller's. The end of ctx ends DoPut.
func DoPut(ctx context.Context, client arrowflight.FlightServiceClient, descriptor *arrowflight.FlightDescriptor, r *cdevice.RecordReader, opts ...Option) error {
	o, err := checkSend(ctx, client, descriptor, r, opts)
	if err != nil {
		return err
	}
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := client.DoPut(call, o.asking()...)
	if err != nil {
		return withStatus(err)
	}
	answered := make(chan error, 1)
	go func() {
		err := errors.New("flight: the function of WithPutResults ended its goroutine")
		defer func() {
			answered <- err
			if err != nil {
				cancel() // of a function of the program: nothing more is received
			}
		}()
		err = putResults(stream, o)
	}()
	err = send(stream, r, descriptor, o)
	if err == nil {
		err = stream.CloseSend()
	}
	// mutant: if err != nil && err != io.EOF {
	if err != nil && err != io.EOF && !overtaken(ctx, stream, err) { // r failed: the server must not take what it has for all
		return withStatus(cmp.Or(earlier(answered), err))
	}
	select {
	case err = <-answered:
	case <-ctx.Done():
		err = cmp.Or(earlier(answered), ctx.Err())
	}
	return withStatus(err)
}

// overtaken reports whether an error of sending says that the call has ended, which is not the end of ctx: the answer
// says why.
func overtaken(ctx context.Context, stream Stream, err error) bool {
	return errors.Is(err, context.Canceled) && stream.Context().Err() != nil && ctx.Err() == nil
}

// earlier returns the error that has arrived, if one has.
func earlier(answered <-chan error) error {
	select {
	case err := <-answered:
		return err
	default:
		return nil
	}
}

func checkSend(ctx context.Context, client arrowflight.FlightServiceClient, descriptor *arrowflight.FlightDescriptor, r *cdevice.RecordReader, opts []Option) (*options, error) {
	o, err := checkClient(ctx, client, opts)
	switch {
	case err != nil:
		return nil, err
	case descriptor == nil:
		return nil, absent("descriptor", "a descriptor")
	case r == nil:
		return nil, absent("r", "a reader")
	}
	return o, nil
}

// putResults receives the server's messages until its end.
func putResults(stream arrowflight.FlightService_DoPutClient, o *options) error {
	for {
		result, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err == nil && o.results != nil {
			err = guarded("the function of WithPutResults", func() error { return o.results(result) })
		}
		if err != nil {
			return err
		}
	}
}

// DoExchange sends the batches that are left in r, as [Send] does, on a goroutine, and returns those of
// the answers, as [DoGet] does. It waits for the schema of the answers. The reader of the answers ends with the
// error of r, if r fails; with its end, or its last Release, sending ends too.
//
// r stays the caller's; until sending has ended, the goroutine reads from it and holds a reference to it.
func DoExchange(ctx context.Context, client arrowflight.FlightServiceClient, descriptor *arrowflight.FlightDescriptor, r *cdevice.RecordReader, opts ...Option) (*cdevice.RecordReader, error) {
	o, err := checkSend(ctx, client, descriptor, r, opts)
	if err != nil {
		return nil, err
	}
	call, cancel := context.WithCancel(ctx)
	stream, err := client.DoExchange(call, o.asking()...)
	if err != nil {
		cancel()
		return nil, withStatus(err)
	}
	var failed atomic.Pointer[error]
	r.Retain()
	go func() {
		defer r.Release()
		err := send(stream, r, descriptor, o)
		if err == nil {
			err = stream.CloseSend()
		}
		if err != nil && err != io.EOF && stream.Context().Err() == nil { // else the call has ended
			failed.Store(&err)
			cancel()
		}
	}()
	answers, _, err := receive(stream, o, call, o.takesTickets(), cancel, func() error {
		if err := failed.Load(); err != nil {
			return *err
		}
		return nil
	}, nil)
	return answers, err
}
