//go:build cgo

package main

import (
	"context"
	"errors"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func init() {
	pyextension.Func("make_context", makeContext)
	pyextension.Func("cancel_context", cancelContext, pyextension.WithParams("handle"))
	pyextension.Func("async_open", asyncOpen, pyextension.WithParams("handler", "queue_size", "validate", "context"))
	pyextension.Func("async_schema", asyncSchema, pyextension.WithParams("handle"))
	pyextension.Func("async_next", asyncNext, pyextension.WithParams("handle"))
	pyextension.Func("async_error", asyncError, pyextension.WithParams("handle"))
	pyextension.Func("async_close", asyncClose, pyextension.WithParams("handle"))
}

// ending is a context that ends with its handle, or before.
type ending struct {
	context.Context
	cancel context.CancelFunc
}

func (e *ending) Release() { e.cancel() }

func makeContext() uint64 {
	ctx, cancel := context.WithCancel(context.Background())
	return put(&ending{ctx, cancel})
}

func cancelContext(handle uint64) error {
	e, err := find[*ending](handle)
	if err == nil {
		e.cancel()
	}
	return err
}

// contextOf is the context of a handle; 0 is one that does not end.
func contextOf(handle uint64) (context.Context, error) {
	if handle == 0 {
		return context.Background(), nil
	}
	return find[*ending](handle)
}

// asyncStream is a stream and its reader, once it was waited for.
type asyncStream struct {
	*cdevice.AsyncStream

	validate bool
	mu       sync.Mutex
	r        *cdevice.RecordReader
}

// Release ends the stream. Close fails only if its context ends.
func (s *asyncStream) Release() {
	_ = s.Close(context.Background())
	if s.r != nil {
		s.r.Release()
	}
}

// readerOf waits for the reader of the stream with a handle, which stays the stream's.
func readerOf(handle uint64) (*cdevice.RecordReader, error) {
	s, err := find[*asyncStream](handle)
	if err != nil {
		return nil, err
	}
	r, err := s.Reader(context.Background())
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

// asyncOpen fills the ArrowAsyncDeviceStreamHandler at an address, which stays where it is until it is released. A queueSize
// of 0 is the default.
func asyncOpen(handler uint64, queueSize int, validate bool, within uint64) (uint64, error) {
	ctx, err := contextOf(within)
	if err != nil {
		return 0, err
	}
	s, err := cdevice.ImportAsync(ctx, cdevice.AsyncDeviceStreamHandlerFromPtr(uintptr(handler)), queueSize)
	if err != nil {
		return 0, err
	}
	return put(&asyncStream{AsyncStream: s, validate: validate}), nil
}

func asyncSchema(handle uint64) (*arrow.Schema, error) {
	r, err := readerOf(handle)
	if err != nil {
		return nil, err
	}
	return r.Schema(), nil
}

// asyncNext returns the next batch, or nil at the end.
func asyncNext(handle uint64) (any, error) {
	r, err := readerOf(handle)
	if err != nil {
		return nil, err
	}
	return first(r.All())
}

// asyncError returns the ProducerError that ended a stream, or nil for any other error.
func asyncError(handle uint64) map[string]any {
	r, err := readerOf(handle)
	if err == nil {
		err = r.Err()
	}
	var e *cdevice.ProducerError
	if !errors.As(err, &e) {
		return nil
	}
	return map[string]any{"callback": e.Callback, "code": e.Code, "message": e.Message, "metadata": e.Metadata.ToMap()}
}

// asyncClose ends a stream, whose handle stays.
func asyncClose(handle uint64) error {
	s, err := find[*asyncStream](handle)
	if err != nil {
		return err
	}
	return s.Close(context.Background())
}
