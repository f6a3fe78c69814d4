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

// DoGet requests the batches of a ticket. It waits for the schema. The reader is as that of [Receive].
//
// The last Release of the reader cancels the call, even while a goroutine waits for its next batch. The end of ctx cancels
// it too.
func DoGet(ctx context.Context, client arrowflight.FlightServiceClient, ticket *arrowflight.Ticket, opts ...GetOption) (*cdevice.RecordReader, error) {
	if err := checkClient("DoGet", ctx, client); err != nil {
		return nil, err
	}
	if ticket == nil {
		return nil, absent("DoGet", "ticket", "a ticket")
	}
	o, err := newOptions("DoGet", opts)
	if err != nil {
		return nil, err
	}
	return doGet(ctx, client, ticket, o)
}

func doGet(ctx context.Context, client arrowflight.FlightServiceClient, ticket *arrowflight.Ticket, o *options) (*cdevice.RecordReader, error) {
	ctx, cancel := context.WithCancel(ctx)
	first, endFirst := context.WithCancel(ctx)
	end := func() { endFirst(); cancel() }
	stream, err := openStream("DoGet", func() (Stream, error) { return client.DoGet(first, ticket, o.ticketCallOptions()...) })
	if err != nil {
		end()
		return nil, withStatus(err)
	}
	retry := func() (Stream, error) {
		endFirst()
		return openStream("DoGet", func() (Stream, error) { return client.DoGet(ctx, ticket, o.callOptions()...) })
	}
	r, _, err := receive(stream, o.acceptsTickets(), o, call{ctx: ctx, cancel: end, retry: retry})
	return r, err
}

// openStream calls a method of the client. arrow-go's client panics after its Close.
func openStream[S Stream](method string, call func() (S, error)) (stream S, err error) {
	err = guarded(method+" of the client, which may be closed", func() (err error) {
		stream, err = call()
		return err
	})
	return stream, err
}

func checkClient(function string, ctx context.Context, client arrowflight.FlightServiceClient) error {
	if err := argument.Context("flight: "+function, ctx); err != nil {
		return withStatus(err)
	}
	return notNil(client, function, "client", "a client of Arrow Flight")
}

func checkSend(function string, ctx context.Context, client arrowflight.FlightServiceClient, descriptor *arrowflight.FlightDescriptor, r *cdevice.RecordReader) error {
	err := checkClient(function, ctx, client)
	switch {
	case err != nil:
	case descriptor == nil:
		err = absent(function, "descriptor", "a descriptor")
	case r == nil:
		err = absent(function, "r", "a reader")
	}
	return err
}

// DoPut sends the remaining batches of r, as [Send] does, and waits until the server has received them and returned. It
// returns the server's error. A server may return without an error before the end of r, if it wants no more batches.
// [WithPutResults] receives its results.
//
// r stays the caller's. The end of ctx ends DoPut.
func DoPut(ctx context.Context, client arrowflight.FlightServiceClient, descriptor *arrowflight.FlightDescriptor, r *cdevice.RecordReader, opts ...PutOption) error {
	if err := checkSend("DoPut", ctx, client, descriptor, r); err != nil {
		return err
	}
	o, err := newOptions("DoPut", opts)
	if err != nil {
		return err
	}
	callCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := openStream("DoPut", func() (arrowflight.FlightService_DoPutClient, error) {
		return client.DoPut(callCtx, o.ticketCallOptions()...)
	})
	if err != nil {
		return withStatus(err)
	}
	results := make(chan error, 1)
	go func() {
		err := errors.New("flight: the function of WithPutResults ended its goroutine")
		defer func() {
			results <- err
			if err != nil {
				cancel() // nothing more is received
			}
		}()
		err = putResults(stream, o)
	}()
	err = sendAndClose(stream, r, descriptor, o)
	// mutant: if err != nil && err != io.EOF {
	if err != nil && err != io.EOF && !endedByServer(ctx, stream, err) {
		// r has failed: the server must not mistake a part of the batches for all.
		return withStatus(contextError(ctx, cmp.Or(received(results), err)))
	}
	select {
	case err = <-results:
	case <-ctx.Done():
		err = cmp.Or(received(results), ctx.Err())
	}
	return withStatus(contextError(ctx, err))
}

// clientStream is a client's stream that sends.
type clientStream interface {
	Stream
	CloseSend() error
}

func sendAndClose(stream clientStream, r *cdevice.RecordReader, descriptor *arrowflight.FlightDescriptor, o *options) error {
	if err := send(stream, r, descriptor, o); err != nil {
		return err
	}
	return stream.CloseSend()
}

// endedByServer reports whether sending has failed because the server has ended the call. Its results then have the cause.
func endedByServer(ctx context.Context, stream Stream, err error) bool {
	return errors.Is(err, context.Canceled) && stream.Context().Err() != nil && ctx.Err() == nil
}

// received returns the error that the results have ended with, if they have.
func received(results <-chan error) error {
	select {
	case err := <-results:
		return err
	default:
		return nil
	}
}

// putResults receives the server's results until their end.
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

// DoExchange sends the remaining batches of r, as [Send] does, on a goroutine, and returns the batches of the answers, as
// [DoGet] does. It waits for the schema of the answers. If r fails, the reader of the answers ends with its error; the end
// or last Release of that reader ends the sending.
//
// r stays the caller's. Until the sending has ended, the goroutine reads from it and holds a reference to it.
func DoExchange(ctx context.Context, client arrowflight.FlightServiceClient, descriptor *arrowflight.FlightDescriptor, r *cdevice.RecordReader, opts ...ExchangeOption) (*cdevice.RecordReader, error) {
	if err := checkSend("DoExchange", ctx, client, descriptor, r); err != nil {
		return nil, err
	}
	o, err := newOptions("DoExchange", opts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := openStream("DoExchange", func() (clientStream, error) { return client.DoExchange(ctx, o.ticketCallOptions()...) })
	if err != nil {
		cancel()
		return nil, withStatus(err)
	}
	var failed atomic.Pointer[error]
	r.Retain()
	go func() {
		defer r.Release()
		err := sendAndClose(stream, r, descriptor, o)
		if err != nil && err != io.EOF && stream.Context().Err() == nil { // else the call has ended
			failed.Store(&err)
			cancel()
		}
	}()
	cause := func() error {
		if err := failed.Load(); err != nil {
			return *err
		}
		return nil
	}
	answers, _, err := receive(stream, o.acceptsTickets(), o, call{ctx: ctx, cancel: cancel, cause: cause})
	return answers, err
}
