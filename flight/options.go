package flight

import (
	"context"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"google.golang.org/grpc"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
)

const (
	// DefaultMaxSend is the size of messages that are sent, without [WithMaxMessageSize]: the most
	// that a Go program receives whose grpc options say nothing.
	DefaultMaxSend = 4 << 20
	// DefaultMaxReceive is the size of messages that are accepted, without [WithMaxMessageSize].
	DefaultMaxReceive = 1 << 30

	defaultPrefetch = 2
	maxPrefetch     = 1 << 20 // of cdevice.RecordReader.Prefetch
	defaultParallel = 4
)

// Option is an option of the functions of this package. Each function takes all options, and ignores
// those that do not concern it. A nil option does nothing.
type Option func(*options)

type options struct {
	dev      device.Device
	mem      memory.Allocator
	max      int // 0: the default
	prefetch int
	parallel int
	validate bool
	call     []grpc.CallOption
	ipc      []ipc.Option
	results  func(*arrowflight.PutResult) error
	metadata func([]byte) error
	sharing  *sharing // nil: bytes
	err      error
}

func newOptions(opts []Option) (*options, error) {
	o := &options{prefetch: defaultPrefetch, parallel: defaultParallel, mem: memory.DefaultAllocator}
	for _, opt := range opts {
		if opt != nil {
			opt(o)
		}
	}
	return o, o.err
}

func (o *options) need(ok bool, name, want string) {
	if !ok && o.err == nil {
		o.err = absent(name, want)
	}
}

// refuse keeps the first error of an option.
func (o *options) refuse(err error) {
	if o.err == nil {
		o.err = err
	}
}

func (o *options) check(ok bool, name, text string) {
	if !ok && o.err == nil {
		o.err = invalid(name, text)
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

// WithDevice makes received batches copies in the memory of dev, each with an event. Without it they
// are in memory of the CPU.
func WithDevice(dev device.Device) Option {
	return func(o *options) {
		o.need(!argument.IsNil(dev), "WithDevice", "a device")
		o.dev = dev
	}
}

// WithAllocator makes the bodies of received messages, what they decompress to, and copies of device
// batches that are to be sent, memory of mem: an allocator of package hostpinned where a GPU copies.
// It may be shared by any number of streams, and is best shared by all. If it has no more memory, the
// stream ends with its error.
func WithAllocator(mem memory.Allocator) Option {
	return func(o *options) {
		o.need(!argument.IsNil(mem), "WithAllocator", "an allocator")
		o.mem = mem
	}
}

// WithMaxMessageSize bounds a message to size bytes. Larger messages that arrive end the stream with an
// error that wraps arrow.ErrInvalid, and so do messages that would decompress to more. A batch that is to
// be sent is sent in several parts, split by rows, all with the metadata of the batch; if one row or a
// dictionary is larger, sending it is an error. A client's option applies to its grpc calls; a server's
// grpc needs it in [ServerOptions] too.
func WithMaxMessageSize(size int) Option {
	return func(o *options) {
		if size <= 0 && o.err == nil {
			o.err = invalid("WithMaxMessageSize", fmt.Sprintf("%d bytes, want more than 0", size))
		}
		o.max = size
	}
}

// WithPrefetch makes a reader receive up to n batches, of at most 1,048,576, beyond the one in use, and
// copy them to the device: 2 by default. With 0, the next batch is received when it is asked for.
func WithPrefetch(n int) Option {
	return func(o *options) {
		o.check(n >= 0 && n <= maxPrefetch, "WithPrefetch", fmt.Sprintf("%d, want 0 to %d", n, maxPrefetch))
		o.prefetch = n
	}
}

// WithParallel makes [DoGetInfo] read up to n endpoints at once: 4 by default.
func WithParallel(n int) Option {
	return func(o *options) {
		if n <= 0 && o.err == nil {
			o.err = invalid("WithParallel", fmt.Sprintf("%d, want more than 0", n))
		}
		o.parallel = n
	}
}

// WithFullValidation checks the contents of received batches (see cdevice's RecordBatch.ValidateFull)
// before they are copied: for peers that are not trusted. Dictionaries are checked without it too.
func WithFullValidation() Option { return func(o *options) { o.validate = true } }

// WithCallOptions adds options to the grpc calls of a client's functions.
func WithCallOptions(opts ...grpc.CallOption) Option {
	return func(o *options) { o.call = append(o.call, opts...) }
}

// WithWriterOptions adds options to arrow-go's IPC writer, such as ipc.WithZstd().
func WithWriterOptions(opts ...ipc.Option) Option {
	return func(o *options) { o.ipc = append(o.ipc, opts...) }
}

// WithPutResults makes [DoPut] call f with each message that the server sends back. f runs on one
// goroutine, and while it runs, the server's next messages wait. Its error ends DoPut.
func WithPutResults(f func(*arrowflight.PutResult) error) Option {
	return func(o *options) {
		o.need(f != nil, "WithPutResults", "a function")
		o.results = f
	}
}

// WithMetadataFunc makes a received stream call f with the app_metadata of each message that has
// nothing else, in its place between the batches, on the goroutine that receives. f owns the bytes. Its
// error ends the stream, and Next waits while it runs, also beyond the end of the context. Without it, such messages are
// skipped.
func WithMetadataFunc(f func(appMetadata []byte) error) Option {
	return func(o *options) {
		o.need(f != nil, "WithMetadataFunc", "a function")
		o.metadata = f
	}
}

// callOptions are those of a client's call.
func (o *options) callOptions() []grpc.CallOption {
	own := []grpc.CallOption{grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(o.maxReceive())}
	return append(own, o.call...)
}

// ServerOptions returns the options of a grpc server whose streams [Receive] and [Send] use: a codec
// that reads bodies into memory of the stream's allocator, and the limit of [WithMaxMessageSize]. The
// codec treats the messages of other services and methods as grpc's own codec does.
func ServerOptions(opts ...Option) []grpc.ServerOption {
	o, _ := newOptions(opts) // a wrong option keeps its default here, and is an error of Receive
	return []grpc.ServerOption{grpc.ForceServerCodecV2(codec{}), grpc.MaxRecvMsgSize(o.maxReceive())}
}

func checkContext(ctx context.Context) error {
	if ctx == nil {
		return absent("ctx", "a context")
	}
	return nil
}

var errInvalid = arrow.ErrInvalid
