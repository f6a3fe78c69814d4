package flight

import (
	"context"
	"fmt"

	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/flightdata"
	"github.com/arrowdevice/arrowdevice/internal/flightticket"
)

const (
	// DefaultMaxSend is the limit of [WithMaxMessageSize] for sent messages: gRPC-Go's default receive limit.
	DefaultMaxSend = 4 << 20
	// DefaultMaxReceive is the limit of [WithMaxMessageSize] for received messages.
	DefaultMaxReceive = 1 << 30

	// AppMetadataKey is the key of a batch's app_metadata in RecordBatch.Metadata.
	AppMetadataKey = "arrow.flight.app_metadata"

	maxPrefetch     = 1 << 20 // of cdevice.RecordReader.Prefetch
	defaultParallel = 4
)

// Stream is a borrowed stream of FlightData messages: that of DoGet, DoPut or DoExchange of arrowflight, of a client or a
// server.
type Stream interface {
	Context() context.Context
	SendMsg(m any) error
	RecvMsg(m any) error
}

// Each function has a type of options, and an option has the type of every function that it concerns.
type (
	// Option is an option of all functions.
	Option interface {
		ReceiveOption
		SendOption
	}
	// ReceiveOption is an option of [Receive], [DoGet], [DoGetEndpoints] and [DoExchange].
	ReceiveOption interface {
		GetOption
		ExchangeOption
		ofReceive()
	}
	// SendOption is an option of [Send], [DoPut] and [DoExchange].
	SendOption interface {
		PutOption
		ExchangeOption
		ofSend()
	}
	// ClientOption is an option of [DoGet], [DoGetEndpoints], [DoPut] and [DoExchange].
	ClientOption interface {
		GetOption
		PutOption
		ExchangeOption
	}
	// GetOption is an option of [DoGet] and [DoGetEndpoints].
	GetOption interface {
		EndpointsOption
		ofGet()
	}
	// EndpointsOption is an option of [DoGetEndpoints].
	EndpointsOption interface {
		applier
		ofEndpoints()
	}
	// PutOption is an option of [DoPut].
	PutOption interface {
		applier
		ofPut()
	}
	// ExchangeOption is an option of [DoExchange].
	ExchangeOption interface {
		applier
		ofExchange()
	}

	applier interface{ apply(*options) error }
)

// option implements all types of options; the result types of the functions below say which ones each option has.
type option func(*options) error

func (f option) apply(o *options) error { return f(o) }
func (option) ofReceive()               {}
func (option) ofSend()                  {}
func (option) ofGet()                   {}
func (option) ofEndpoints()             {}
func (option) ofPut()                   {}
func (option) ofExchange()              {}

type options struct {
	target   device.Device // nil: memory of the CPU
	mem      memory.Allocator
	max      int  // 0: the default
	prefetch int  // below 0: the default
	adaptive bool // batches are received ahead from the first large one on
	parallel int
	validate bool
	call     []grpc.CallOption
	ipc      []ipc.Option
	results  func(*arrowflight.PutResult) error
	metadata func([]byte) error
	sharing  bool
	copies   flightticket.Memory
}

func newOptions[O applier](function string, opts []O) (*options, error) {
	o := &options{prefetch: -1, parallel: defaultParallel, mem: memory.DefaultAllocator}
	for i, opt := range opts {
		if argument.IsNil(opt) {
			return nil, absent(function, fmt.Sprintf("opts[%d]", i), "an option")
		}
		if err := opt.apply(o); err != nil {
			return nil, err
		}
	}
	if o.prefetch < 0 {
		o.setPrefetch()
	}
	return o, nil
}

// setPrefetch sets the default number of batches that are received ahead: none, unless they are copied, validated or opened. To pass
// a batch to another goroutine takes longer than to receive it, and longer than any work on a small one.
func (o *options) setPrefetch() {
	o.prefetch = 0
	if o.target != nil || o.sharing || o.validate || o.metadata != nil {
		o.prefetch, o.adaptive = 2, !o.sharing && o.metadata == nil
	}
}

func (o *options) maxSend() int {
	if o.max > 0 {
		return o.max
	}
	return DefaultMaxSend
}

func (o *options) maxReceive() int {
	if o.max > 0 {
		return o.max
	}
	return DefaultMaxReceive
}

// deviceType returns the type of the memory of received batches.
func (o *options) deviceType() device.Type {
	if o.target == nil {
		return device.CPU
	}
	return o.target.ID().Type
}

// callOptions returns the gRPC options of a client's call.
func (o *options) callOptions() []grpc.CallOption {
	own := []grpc.CallOption{grpc.ForceCodecV2(flightdata.Codec), grpc.MaxCallRecvMsgSize(o.maxReceive())}
	return append(own, o.call...)
}

// acceptsTickets reports whether batches may be received as tickets.
func (o *options) acceptsTickets() bool { return o.sharing && flightticket.Available() }

// ticketCallOptions returns the gRPC options of a client's call that accepts tickets, if they are enabled.
func (o *options) ticketCallOptions() []grpc.CallOption {
	if !o.acceptsTickets() {
		return o.callOptions()
	}
	return append(o.callOptions(), flightticket.CallOption(o.target, o.call))
}

// WithTarget copies received batches to the memory of dev. Each has an event. Without the option they are in memory of the
// CPU.
func WithTarget(dev device.Device) ReceiveOption {
	return option(func(o *options) error {
		o.target = dev
		return notNil(dev, "WithTarget", "dev", "a device")
	})
}

// WithAllocator allocates the bodies of received messages, before and after decompression, from mem, and also copies of
// device batches that are to be sent. Dictionaries are kept on the Go heap. Where a GPU copies, use an allocator of package
// hostpinned, best one for all streams. If it fails to allocate, the stream ends with its error.
func WithAllocator(mem memory.Allocator) Option {
	return option(func(o *options) error {
		o.mem = mem
		return notNil(mem, "WithAllocator", "mem", "an allocator")
	})
}

// WithMaxMessageSize limits messages to size bytes. A received message that is larger, or would be after decompression,
// ends the stream with an error that wraps arrow.ErrInvalid. A larger batch is sent in several parts, split by rows, each
// with the metadata of the batch; a row or a dictionary that is larger is an error.
//
// The limit applies to the gRPC calls of a client as well; for a server see [ServerOptions]. gRPC refuses a larger message
// first, with an error of code ResourceExhausted that does not wrap arrow.ErrInvalid.
func WithMaxMessageSize(size int) Option {
	return option(func(o *options) error {
		o.max = size
		return inRange(size > 0, "WithMaxMessageSize", "size = %d, want more than 0", size)
	})
}

// WithPrefetch makes a reader receive up to n batches, at most 1,048,576, beyond the one in use, and copy them to the
// device. With 0, the reader receives a batch when it is asked for; gRPC has received what its flow control allows by then. By
// default, n is 0 for batches in memory of the CPU and for streams of batches below 64 KiB, and 2 for larger ones with
// [WithTarget] or [WithValidation], and for all with [WithSharing] or [WithMetadataFunc].
func WithPrefetch(n int) ReceiveOption {
	return option(func(o *options) error {
		o.prefetch = n
		return inRange(n >= 0 && n <= maxPrefetch, "WithPrefetch", "n = %d, want 0 to %d", n, maxPrefetch)
	})
}

// WithParallel makes [DoGetEndpoints] read up to n endpoints at once: 4 by default.
func WithParallel(n int) EndpointsOption {
	return option(func(o *options) error {
		o.parallel = n
		return inRange(n > 0, "WithParallel", "n = %d, want more than 0", n)
	})
}

// WithValidation validates the contents of received batches before they are copied, as cdevice's RecordBatch.ValidateFull
// does: for untrusted peers. Dictionaries are always validated.
func WithValidation() ReceiveOption {
	return option(func(o *options) error { o.validate = true; return nil })
}

// WithCallOptions adds options to the gRPC calls.
func WithCallOptions(opts ...grpc.CallOption) ClientOption {
	return option(func(o *options) error {
		o.call = append(o.call, opts...)
		return noneNil("WithCallOptions", opts)
	})
}

// WithWriterOptions adds options to arrow-go's IPC writer, such as ipc.WithZstd().
func WithWriterOptions(opts ...ipc.Option) SendOption {
	return option(func(o *options) error {
		o.ipc = append(o.ipc, opts...)
		return noneNil("WithWriterOptions", opts)
	})
}

// WithPutResults calls f with each result that the server sends, one at a time, on a goroutine. While f runs, the next
// results wait. An error of f ends [DoPut].
func WithPutResults(f func(*arrowflight.PutResult) error) PutOption {
	return option(func(o *options) error {
		o.results = f
		return notNil(f, "WithPutResults", "f", "a function")
	})
}

// WithMetadataFunc calls f with the app_metadata of each received message that has nothing else, in its place between the
// batches, on the goroutine that receives. f owns the bytes. While f runs, Next waits, even after the end of its context. An
// error of f ends the stream. Without the option such messages are skipped.
func WithMetadataFunc(f func(appMetadata []byte) error) ReceiveOption {
	return option(func(o *options) error {
		o.metadata = f
		return notNil(f, "WithMetadataFunc", "f", "a function")
	})
}

// WithSharing passes batches as tickets of package share, in place of bodies, to another process of the same user on the
// same machine that has the option too: in the answers to [DoGet] and [DoExchange], and in the batches that [DoPut] and DoExchange send.
// The connection must be a Unix socket, the loopback interface, or have one address at both ends; other connections carry
// no trace of the option. It adds metadata to the calls as gRPC's credentials do, and includes those of [WithCallOptions]; it
// replaces credentials that a connection has by grpc.WithDefaultCallOptions, which gRPC does not let it read. Any other peer gets bodies, and so does a process that cannot open memory of the batch's GPU: its
// [WithTarget] is not a GPU, or package share finds no driver there. On systems other than Linux, where package share does not
// work, all batches go as bodies.
//
// Batches that package share cannot share are copied: those in memory of the CPU to mem, a share.Allocator, and those of a
// GPU to memory of dev, a device.Sharer, that other processes can open. Without mem or dev, which may be nil, or if the copy fails, they are
// sent as bodies, and so is a batch whose ticket is larger than [WithMaxMessageSize]. A process that only receives needs
// neither.
//
// If the sending process is killed, the receiver's open batches in memory of a GPU have undefined contents, and reads of
// them do not fail; batches in memory of the CPU stay valid. Copy a batch that must outlive its sender.
//
// The sender holds a batch until the receiver has released its own. It waits while more than two of its tickets were not
// opened, and at its end until all were. The end of the stream's context ends the wait, and withdraws the tickets that were
// not opened.
//
// DoPut and DoExchange wait for the server's response headers before their first batch, at most 100 ms; batches go as bodies
// until they arrive. [Receive] sends these headers at once.
//
// If DoGet cannot open the first ticket, before any batch, it calls the server again, for bodies; the server must then
// accept the same ticket of Flight twice. Any other ticket that cannot be opened ends the stream with an error of code
// FailedPrecondition.
func WithSharing(dev device.Device, mem memory.Allocator) Option {
	return option(func(o *options) error {
		o.sharing, o.copies = true, flightticket.Memory{}
		if !argument.IsNil(mem) {
			o.copies.Host = mem
		}
		if argument.IsNil(dev) {
			return nil
		}
		gpu, ok := dev.(device.Sharer)
		if !ok {
			return &Error{"WithSharing", fmt.Sprintf("dev is a %T, whose memory other processes cannot open", dev), device.ErrNotSupported}
		}
		var err error
		if o.copies.GPU, err = gpu.WithMemory(device.ShareableMemory); err != nil {
			return &Error{"WithSharing", "dev", err}
		}
		return nil
	})
}

// ServerOptions returns the options of a gRPC server whose streams [Receive] and [Send] use: a codec that decodes bodies into
// memory of the stream's allocator, and a limit of [DefaultMaxReceive] for messages, which a later grpc.MaxRecvMsgSize
// replaces. Messages of other services and methods are encoded as by gRPC's own codec.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ForceServerCodecV2(flightdata.Codec), grpc.MaxRecvMsgSize(DefaultMaxReceive)}
}
