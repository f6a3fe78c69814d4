package main

// #include <stdint.h>
import "C"

import (
	"context"
	"encoding/hex"
	"errors"
	"runtime/cgo"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

// Asynchronous streams and contexts are not in the table of objects: their handles are cgo's.

// asyncHandles counts them.
var asyncHandles atomic.Int64

func newHandle(v any) C.uint64_t {
	asyncHandles.Add(1)
	return C.uint64_t(cgo.NewHandle(v))
}

// of returns the object of a handle.
func of[T any](handle C.uint64_t) T { return cgo.Handle(handle).Value().(T) }

func endHandle(handle C.uint64_t) {
	cgo.Handle(handle).Delete()
	asyncHandles.Add(-1)
}

// ending is a context and its end.
type ending struct {
	context.Context
	end context.CancelFunc
}

// golib_context_new makes a context, whose deadline is past if overdue is not 0.
//
//export golib_context_new
func golib_context_new(overdue C.int, out *C.uint64_t) *C.char {
	return guard(func() error {
		ctx, end := context.WithCancel(context.Background())
		if overdue != 0 {
			ctx, end = context.WithTimeout(context.Background(), 0)
		}
		*out = newHandle(&ending{ctx, end})
		return nil
	})
}

// golib_context_cancel ends a context, whose handle stays.
//
//export golib_context_cancel
func golib_context_cancel(handle C.uint64_t) *C.char {
	return guard(func() error {
		of[*ending](handle).end()
		return nil
	})
}

//export golib_context_release
func golib_context_release(handle C.uint64_t) *C.char {
	return guard(func() error {
		of[*ending](handle).end()
		endHandle(handle)
		return nil
	})
}

// contextOf is the context of a handle; 0 is one that does not end.
func contextOf(handle C.uint64_t) context.Context {
	if handle == 0 {
		return context.Background()
	}
	return of[*ending](handle)
}

// asyncStream is a stream and its reader, which is there once it was waited for.
type asyncStream struct {
	*cdevice.AsyncStream

	validate bool
	mu       sync.Mutex
	r        *cdevice.RecordReader
}

// reader waits for the reader, which stays the stream's.
func (s *asyncStream) reader(ctx context.Context) (*cdevice.RecordReader, error) {
	r, err := s.Reader(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.r != nil:
		r.Release()
	case s.validate:
		r.Map(valid)
	}
	s.r = r
	return r, nil
}

// asyncReaderOf waits for the reader of the stream with a handle.
func asyncReaderOf(handle C.uint64_t) (*cdevice.RecordReader, error) {
	return of[*asyncStream](handle).reader(context.Background())
}

// golib_async_open fills the struct ArrowAsyncDeviceStreamHandler at an address, which
// stays where it is until it is released. A queueSize of 0 is the default.
//
//export golib_async_open
func golib_async_open(handler C.uintptr_t, queueSize, validate C.int, ctx C.uint64_t, out *C.uint64_t) *C.char {
	return guard(func() error {
		s, err := cdevice.ImportAsync(contextOf(ctx), cdevice.AsyncDeviceStreamHandlerFromPtr(uintptr(handler)), int(queueSize))
		if err == nil {
			*out = newHandle(&asyncStream{AsyncStream: s, validate: validate != 0})
		}
		return err
	})
}

// golib_async_schema fills the struct ArrowSchema at an address.
//
//export golib_async_schema
func golib_async_schema(handle, ctx C.uint64_t, out C.uintptr_t) *C.char {
	return guard(func() error {
		r, err := of[*asyncStream](handle).reader(contextOf(ctx))
		if err != nil {
			return err
		}
		return cdevice.ExportSchema(r.Schema(), cdevice.SchemaFromPtr(uintptr(out)))
	})
}

//export golib_async_device_type
func golib_async_device_type(handle C.uint64_t, out **C.char) *C.char {
	return answer(out, func() (any, error) {
		r, err := asyncReaderOf(handle)
		if err != nil {
			return nil, err
		}
		return r.DeviceType(), nil
	})
}

// golib_async_metadata fills the struct ArrowSchema at an address with a schema that has
// nothing but the metadata of the stream.
//
//export golib_async_metadata
func golib_async_metadata(handle C.uint64_t, out C.uintptr_t) *C.char {
	return guard(func() error {
		r, err := asyncReaderOf(handle)
		if err != nil {
			return err
		}
		return exportMetadata(r.Metadata(), cdevice.SchemaFromPtr(uintptr(out)))
	})
}

func exportMetadata(md arrow.Metadata, out *cdata.CArrowSchema) error {
	return cdevice.ExportSchema(arrow.NewSchema(nil, &md), out)
}

// golib_async_next returns the handle of the next batch, or 0 at the end. The
// metadata of the batch goes to an ArrowSchema, as in golib_async_metadata.
//
//export golib_async_next
func golib_async_next(handle C.uint64_t, metadata C.uintptr_t, out *C.uint64_t) *C.char {
	return guard(func() error {
		r, err := asyncReaderOf(handle)
		if err != nil {
			return err
		}
		for b, err := range r.All() {
			if err != nil {
				return err
			}
			if err := exportMetadata(b.Metadata(), cdevice.SchemaFromPtr(uintptr(metadata))); err != nil {
				return err
			}
			b.Retain()
			*out = C.uint64_t(put(aBatch{b}))
			break
		}
		return nil
	})
}

// producerErrorInfo is a ProducerError. Metadata is hexadecimal: it need not be text.
type producerErrorInfo struct {
	Callback string            `json:"callback"`
	Code     int               `json:"code"`
	Message  string            `json:"message"`
	Metadata map[string]string `json:"metadata"`
}

// golib_async_error returns the ProducerError that ended a stream, or null for any other error.
//
//export golib_async_error
func golib_async_error(handle C.uint64_t, out **C.char) *C.char {
	return answer(out, func() (any, error) {
		r, err := asyncReaderOf(handle)
		if err == nil {
			err = r.Err()
		}
		var e *cdevice.ProducerError
		if !errors.As(err, &e) {
			return nil, nil
		}
		info := producerErrorInfo{e.Callback, e.Code, e.Message, map[string]string{}}
		for key, value := range e.Metadata.ToMap() {
			info.Metadata[hex.EncodeToString([]byte(key))] = hex.EncodeToString([]byte(value))
		}
		return info, nil
	})
}

// golib_async_close ends a stream. Its handle stays.
//
//export golib_async_close
func golib_async_close(handle C.uint64_t) *C.char {
	return guard(func() error { return of[*asyncStream](handle).Close(context.Background()) })
}

//export golib_async_release
func golib_async_release(handle C.uint64_t) *C.char {
	return guard(func() error {
		s := of[*asyncStream](handle)
		defer endHandle(handle)
		if s.r != nil {
			defer s.r.Release()
		}
		return s.Close(context.Background())
	})
}
