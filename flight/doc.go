// Package flight sends and receives batches in device memory over Arrow Flight. The engine is
// arrow-go's package flight, here called arrowflight: its clients and servers, with their TLS,
// authentication and middleware, stay as they are. This package reads and writes their streams.
//
// # Client
//
//	r, err := flight.DoGet(ctx, client, ticket, flight.WithDevice(gpu), flight.WithAllocator(mem))
//	defer r.Release()
//	for batch, err := range r.All() { ... }                                // on the GPU, with an event
//
//	err = flight.DoPut(ctx, client, descriptor, r)                         // r: in any memory
//	answers, err := flight.DoExchange(ctx, client, descriptor, r)
//	r, err := flight.DoGetInfo(ctx, info, dial, flight.WithDevice(gpu))    // all endpoints at once
//
// # Server
//
// The methods of an arrowflight.FlightServer call Send and Receive with their streams:
//
//	type server struct {
//		arrowflight.BaseFlightServer
//		open func(*arrowflight.Ticket) (*cdevice.RecordReader, error)
//		keep func(*cdevice.RecordReader, *arrowflight.FlightDescriptor) error
//		opts []flight.Option
//	}
//
//	func (s *server) DoGet(t *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
//		r, err := s.open(t)
//		if err != nil {
//			return err
//		}
//		defer r.Release()
//		return flight.Send(stream, r, s.opts...)
//	}
//
//	func (s *server) DoPut(stream arrowflight.FlightService_DoPutServer) error {
//		r, descriptor, err := flight.Receive(stream, s.opts...)
//		if err != nil {
//			return err
//		}
//		defer r.Release()
//		return s.keep(r, descriptor)
//	}
//
// The server has the codec of this package:
//
//	listening := arrowflight.NewServerWithMiddleware(nil, flight.ServerOptions()...)
//
// # Memory
//
// A received body is copied once from the buffers of grpc into memory of [WithAllocator]. With page-locked
// memory (package hostpinned), one allocator for the whole process, a GPU copies from there directly, while
// the next message arrives. Without [ServerOptions], a server's streams work too, with two more copies of
// each body in memory of the Go heap.
//
// A stream holds a bounded number of batches ([WithPrefetch]). A slow consumer stops reading from the
// network, and the flow control of HTTP/2 then stops the sender.
//
// # Metadata
//
// The app_metadata of a batch is the value of [AppMetadataKey] in RecordBatch.Metadata, and the custom
// metadata of its message the other keys. Send sends both. Messages that have app_metadata only go to
// [WithMetadataFunc].
//
// # Errors
//
// Errors of a stream keep their code: status.Code of package grpc/status returns it, and codes Canceled and
// DeadlineExceeded are also context.Canceled and context.DeadlineExceeded for errors.Is. A message of a
// peer that is malformed is an [Error], which wraps arrow.ErrInvalid. It is refused before arrow-go reads it.
package flight
