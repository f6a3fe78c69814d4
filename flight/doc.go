// Package flight sends and receives batches in device memory over Arrow Flight. It reads and writes the streams of arrow-go's
// package flight, here called arrowflight, whose clients and servers, with TLS, authentication and middleware, are used as
// they are.
//
// # Client
//
//	r, err := flight.DoGet(ctx, client, ticket, flight.WithTarget(gpu), flight.WithAllocator(mem))
//	defer r.Release()
//	for batch, err := range r.All() { ... }                                     // on the GPU, with an event
//
//	err = flight.DoPut(ctx, client, descriptor, r)                              // r: in any memory
//	answers, err := flight.DoExchange(ctx, client, descriptor, r)
//	r, err := flight.DoGetEndpoints(ctx, info, dial, flight.WithTarget(gpu))    // all endpoints at once
//
// # Server
//
// The methods of an arrowflight.FlightServer call Send and Receive with their streams:
//
//	type server struct {
//		arrowflight.BaseFlightServer
//		open func(*arrowflight.Ticket) (*cdevice.RecordReader, error)
//		keep func(*cdevice.RecordReader, *arrowflight.FlightDescriptor) error
//		gpu  device.Device
//		mem  memory.Allocator
//	}
//
//	func (s *server) DoGet(t *arrowflight.Ticket, stream arrowflight.FlightService_DoGetServer) error {
//		r, err := s.open(t)
//		if err != nil {
//			return err
//		}
//		defer r.Release()
//		return flight.Send(stream, r, flight.WithAllocator(s.mem))
//	}
//
//	func (s *server) DoPut(stream arrowflight.FlightService_DoPutServer) error {
//		r, descriptor, err := flight.Receive(stream, flight.WithTarget(s.gpu), flight.WithAllocator(s.mem))
//		if err != nil {
//			return err
//		}
//		defer r.Release()
//		return s.keep(r, descriptor)
//	}
//
// The gRPC server has the codec of this package:
//
//	listening := arrowflight.NewServerWithMiddleware(nil, flight.ServerOptions()...)
//
// # Memory
//
// A received body is copied once, from gRPC's buffers into memory of [WithAllocator]. If that is pinned (package
// hostpinned, one allocator for the process), a GPU copies from it directly while the next message arrives; bodies below
// 64 KiB, which are gathered for that, are memory of the Go heap. The streams of a server without [ServerOptions] work too,
// with two more copies of each body, on the Go heap.
//
// A stream holds a bounded number of batches ([WithPrefetch]). A slow consumer stops reading from the network, and the flow
// control of HTTP/2 then stops the sender.
//
// # Metadata
//
// RecordBatch.Metadata has the app_metadata of a batch under [AppMetadataKey], and the custom metadata of its message under
// the other keys. Send sends both. Messages with app_metadata only are passed to [WithMetadataFunc].
//
// # Errors
//
// Errors of a stream keep their code: status.Code of package grpc/status returns it. They also keep the error that the peer's wrapped, if
// that is arrow.ErrInvalid, ErrType, ErrNotImplemented, ErrNotFound or ErrKey, device.ErrNotSupported, hostpinned.ErrLimit,
// share.ErrOwnerGone, syscall.ENOMEM (no memory of a GPU, for one), context.Canceled or context.DeadlineExceeded: errors.Is finds it. An
// error that has a gRPC status of its own arrives as that status alone, without the errors that it wraps besides. In such a status, and in
// that of a peer without this package, the codes InvalidArgument, Unimplemented and NotFound are the errors that arrow-go has for them. A
// malformed message is an [Error] that wraps arrow.ErrInvalid; it is rejected before arrow-go reads it. The limit of an allocator, and a
// GPU without memory, have the code ResourceExhausted.
//
// The text of an error without a gRPC status of its own is cut so that it arrives at clients of gRPC's library in C++, as PyArrow's: after
// some 7,000 bytes, or 3,000 where the code does not suffice to tell the wrapped error, and earlier if it is not ASCII. The text then ends
// with the number of bytes that are missing.
package flight
