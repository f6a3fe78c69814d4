package cdevice

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/excerpt"
	"github.com/arrowdevice/arrowdevice/internal/schema"
)

// CArrowDeviceArrayStream is struct ArrowDeviceArrayStream of the C device stream
// interface. Like [CArrowDeviceArray], it may live in Go memory and be filled without being
// zeroed first; a C pointer becomes one with [DeviceArrayStreamFromPtr].
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#device-stream-interface
type CArrowDeviceArrayStream = abi.ArrowDeviceArrayStream

// DeviceArrayStreamFromPtr returns the struct ArrowDeviceArrayStream at an address. It
// borrows the struct.
func DeviceArrayStreamFromPtr(ptr uintptr) *CArrowDeviceArrayStream {
	return abi.At[CArrowDeviceArrayStream](ptr)
}

// ReleaseCArrowDeviceArrayStream calls the release callback of a stream that nobody
// imported. A nil or released stream is left alone.
func ReleaseCArrowDeviceArrayStream(stream *CArrowDeviceArrayStream) {
	if stream != nil && stream.Release != 0 {
		bridge.CallStreamRelease(stream)
	}
}

// WithPrefetch makes a reader ask the producer for batches before it is asked itself, on a
// goroutine of its own: up to depth of them are ready beyond the one that is in use. It is
// an option of streams, and begins with the first batch that is asked for. Releasing the
// reader does not wait for a call of the producer's get_next that is under way: its
// release callback is called, on that goroutine, when the call returns.
func WithPrefetch(depth int) ImportOption {
	return func(o *importOptions) { o.prefetch = depth }
}

// ImportRecordReader makes a reader of a C stream of record batches. It asks for the
// schema, and for nothing else yet. Batches are imported as [ImportRecordBatch] does,
// with the same options; they need not be released before the reader. The producer's
// callbacks are called one at a time, on the goroutine that asks for a batch.
//
// Each batch must live on the type of device that the stream declares. The stream ends
// where the producer gives a released array, whatever else that holds, or with the first
// error: a [StreamError] with the producer's code and text, or a [FieldError] about what
// it gave. After that, get_next is not called again.
//
// It takes ownership of *stream, also when it returns an error: it is marked released.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#device-stream-interface
func ImportRecordReader(stream *CArrowDeviceArrayStream, opts ...ImportOption) (*RecordReader, error) {
	c, err := openStream(stream, opts)
	if err != nil {
		return nil, err
	}
	s, err := readSchema(c, schema.ImportSchema)
	if err != nil {
		return nil, err
	}
	next := func() (*RecordBatch, error) {
		if err := c.next(); err != nil {
			return nil, err
		}
		b, err := ImportRecordBatchWithSchema(&c.out, s, opts...)
		return b, ofNext(err)
	}
	from := &function[*RecordBatch]{ask: next, stop: c.release}
	return newRecordReader(s, device.Type(c.DeviceType), prefetch(from, c.opts.prefetch)), nil
}

// ImportArrayReader is [ImportRecordReader] for a stream of arrays of any type.
//
// It takes ownership of *stream, also when it returns an error.
func ImportArrayReader(stream *CArrowDeviceArrayStream, opts ...ImportOption) (*ArrayReader, error) {
	c, err := openStream(stream, opts)
	if err != nil {
		return nil, err
	}
	field, err := readSchema(c, schema.Import)
	if err != nil {
		return nil, err
	}
	next := func() (*Array, error) {
		if err := c.next(); err != nil {
			return nil, err
		}
		a, err := importArray(&c.out, field, opts)
		return a, ofNext(err)
	}
	from := &function[*Array]{ask: next, stop: c.release}
	return newArrayReader(field, device.Type(c.DeviceType), prefetch(from, c.opts.prefetch)), nil
}

// prefetch returns a supply that is depth items ahead of its reader.
func prefetch[T counted](from *function[T], depth int) supply[T] {
	if depth <= 0 {
		return from
	}
	return &ahead[T]{from: from, depth: depth}
}

// cStream is a stream that somebody else exported.
type cStream struct {
	*cStructs
	opts importOptions
}

// cStructs is what the callbacks of a stream are given. No Go pointer stands beside it: a
// producer that is written in Go may pass it to C, and cgo looks for some.
type cStructs struct {
	abi.ArrowDeviceArrayStream
	out CArrowDeviceArray // of get_next
}

var importedStreams atomic.Int64

// openStream moves the stream into Go memory and marks the source released. Unless it
// returns an error, the caller releases it.
func openStream(stream *CArrowDeviceArrayStream, opts []ImportOption) (*cStream, error) {
	if stream == nil {
		return nil, invalid(opImport, "ArrowDeviceArrayStream", "NULL", "a struct to import")
	}
	if stream.Release == 0 {
		return nil, fieldError(opImport, "ArrowDeviceArrayStream.release", "NULL", nil, ErrReleased)
	}
	c := &cStream{cStructs: &cStructs{ArrowDeviceArrayStream: *stream}}
	stream.Release = 0
	importedStreams.Add(1)
	done := false
	defer func() { // also when an option panics
		if !done {
			c.release()
		}
	}()
	for _, opt := range opts {
		opt(&c.opts)
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	done = true
	return c, nil
}

func (c *cStream) check() error {
	if c.DeviceType <= 0 {
		return invalid(opImport, "ArrowDeviceArrayStream.device_type", c.DeviceType, "the type of a device")
	}
	for _, f := range []struct {
		name string
		addr uintptr
	}{{"get_schema", c.GetSchema}, {"get_next", c.GetNext}, {"get_last_error", c.GetLastError}} {
		if f.addr == 0 {
			return invalid(opImport, "ArrowDeviceArrayStream."+f.name, "NULL", "a callback")
		}
	}
	return nil
}

// next asks for an array, which is in out then; io.EOF where there is none.
func (c *cStream) next() error {
	if code := bridge.CallGetNext(&c.ArrowDeviceArrayStream, &c.out); code != 0 {
		return c.failed("get_next", code)
	}
	if c.out.Array.Release == 0 {
		return io.EOF
	}
	if c.out.DeviceType != c.DeviceType {
		c.opts.discard(&c.out)
		return ofNext(invalid(opImport, "ArrowDeviceArray.device_type", c.out.DeviceType, fmt.Sprintf("%d, the stream's", c.DeviceType)))
	}
	return nil
}

// ofNext is an error about what get_next gave.
func ofNext(err error) error {
	if err == nil {
		return nil
	}
	return within("ArrowDeviceArrayStream.get_next", err)
}

// failed is the error for a code that a callback returned just now.
func (c *cStream) failed(callback string, code int) error {
	text := bridge.CallGetLastError(&c.ArrowDeviceArrayStream)
	return &StreamError{Callback: callback, Code: code, Message: strings.ToValidUTF8(text, "\ufffd")}
}

func (c *cStream) release() {
	c.opts.release(func() {
		bridge.CallStreamRelease(&c.ArrowDeviceArrayStream)
		importedStreams.Add(-1)
	})
}

// readSchema asks the producer for the schema. After an error, the stream is released.
func readSchema[T any](c *cStream, take func(*abi.ArrowSchema) (T, error)) (s T, err error) {
	var out abi.ArrowSchema
	if code := bridge.CallGetSchema(&c.ArrowDeviceArrayStream, &out); code != 0 {
		err = c.failed("get_schema", code)
	} else if s, err = take(&out); err != nil {
		err = within("ArrowDeviceArrayStream.get_schema", err)
	}
	if err != nil {
		c.release()
	}
	return s, err
}

// ExportRecordReader fills *out with the batches that are left in r, each exported as
// [ExportRecordBatch] does with the same options. Nothing is asked of r before the
// consumer asks. A consumer may call from any thread, one call at a time, as the
// specification has it.
//
// The exported stream holds r on its own until the consumer releases it, at any time;
// arrays outlive it. r stays the caller's: batches that one takes the other does not see.
// Errors, also a panic in the code that makes the batches, reach the consumer as an errno
// and the text of get_last_error, which is valid until the next call. After an error or
// the end, get_next gives the same again.
//
// It writes *out only on success; *out may hold anything before.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#device-stream-interface
func ExportRecordReader(r *RecordReader, out *CArrowDeviceArrayStream, opts ...ExportOption) error {
	if r == nil {
		return exportReleased("RecordReader")
	}
	return exportStream(&exported[*RecordBatch]{
		reader: &r.r,
		schema: func(s *abi.ArrowSchema) error { return schema.ExportSchema(r.schema, s) },
		array: func(b *RecordBatch, out *CArrowDeviceArray) error {
			return ExportRecordBatch(b, out, nil, opts...)
		},
	}, out, opts)
}

// ExportArrayReader is [ExportRecordReader] for a stream of arrays.
//
// It writes *out only on success; *out may hold anything before.
func ExportArrayReader(r *ArrayReader, out *CArrowDeviceArrayStream, opts ...ExportOption) error {
	if r == nil {
		return exportReleased("ArrayReader")
	}
	return exportStream(&exported[*Array]{
		reader: &r.r,
		schema: func(s *abi.ArrowSchema) error { return schema.Export(r.field, s) },
		array:  func(a *Array, out *CArrowDeviceArray) error { return ExportArray(a, out, nil, opts...) },
	}, out, opts)
}

var exportedStreams atomic.Int64

// exportStream gives s a reference to its reader.
func exportStream[T counted](s *exported[T], out *CArrowDeviceArrayStream, opts []ExportOption) error {
	if out == nil {
		return noOutput("ArrowDeviceArrayStream")
	}
	t := exportedType(s.reader.deviceType, opts) // an option may panic
	if !s.reader.hold() {
		return exportReleased("reader")
	}
	exportedStreams.Add(1)
	bridge.ExportStream(s, int32(t), out)
	return nil
}

// exportedType is the device type that arrays of the type have when they are exported.
func exportedType(t device.Type, opts []ExportOption) device.Type {
	var o exportOptions
	for _, opt := range opts {
		opt(&o)
	}
	if o.forHost {
		return device.CPU
	}
	return t
}

// exported is the Go side of a stream of ours: a bridge.Stream.
type exported[T counted] struct {
	reader *reader[T] // a reference
	schema func(*abi.ArrowSchema) error
	array  func(T, *CArrowDeviceArray) error
	failed atomic.Pointer[streamEnd] // a batch that could not be exported ended the stream
	text   lastError
}

func (s *exported[T]) GetSchema(out *abi.ArrowSchema) int {
	return s.text.of(func() error {
		if out == nil {
			return noOutput("ArrowSchema")
		}
		return s.schema(out)
	})
}

func (s *exported[T]) GetNext(out *abi.ArrowDeviceArray) int {
	return s.text.of(func() error {
		if out == nil {
			return noOutput("ArrowDeviceArray")
		}
		if end := s.failed.Load(); end != nil {
			return end.err
		}
		item, err := s.reader.pull()
		if err == io.EOF {
			*out = CArrowDeviceArray{} // released: the end
			return nil
		}
		if err != nil {
			return err
		}
		defer item.Release()
		if err := s.array(item, out); err != nil {
			s.failed.Store(&streamEnd{err})
			return err
		}
		return nil
	})
}

func (s *exported[T]) GetLastError() uintptr { return s.text.address() }

// Release counts the stream last: the end of the reader may run code of a program, or
// call the release callback of a producer.
func (s *exported[T]) Release() {
	defer exportedStreams.Add(-1)
	s.text.close()
	s.reader.release()
}

// lastError is the text of the last error of a stream, for C to read.
type lastError struct {
	mu     sync.Mutex
	text   []byte // NUL-terminated and pinned; nil where the last call had no error
	pins   runtime.Pinner
	closed bool
}

// of runs a callback and returns the code of its error, or 0. A panic is an error.
func (l *lastError) of(do func() error) (code int) {
	err := func() (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = panicError(v)
			}
		}()
		return do()
	}()
	return l.set(err)
}

func (l *lastError) set(err error) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pins.Unpin()
	l.text = nil
	if err == nil {
		return 0
	}
	if !l.closed {
		l.text = cText(err.Error())
		l.pins.Pin(&l.text[0])
	}
	return errnoOf(err)
}

func (l *lastError) address() uintptr {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text == nil {
		return 0
	}
	return uintptr(addressOf(l.text))
}

func (l *lastError) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pins.Unpin()
	l.text, l.closed = nil, true
}

// cText is a text for C: UTF-8, and NUL-terminated, 64 KiB at most.
func cText(s string) []byte {
	valid := strings.ToValidUTF8(s[:min(len(s), excerpt.Message)], "\ufffd")
	valid = strings.ReplaceAll(valid, "\x00", "\ufffd")
	return append([]byte(excerpt.Within(valid, len(s), excerpt.Message-1)), 0)
}
