//go:build cgo

package main

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func init() {
	pyextension.Func("make_context", makeContext, pyextension.WithParams("overdue"))
	pyextension.Func("cancel_context", cancelContext, pyextension.WithParams("handle"))
	pyextension.Func("async_open", asyncOpen, pyextension.WithParams("handler", "queue_size", "validate", "context"))
	pyextension.Func("async_schema", asyncSchema, pyextension.WithParams("handle", "context"))
	pyextension.Func("async_device_type", asyncDeviceType, pyextension.WithParams("handle"))
	pyextension.Func("async_metadata", asyncMetadata, pyextension.WithParams("handle", "schema"))
	pyextension.Func("async_next", asyncNext, pyextension.WithParams("handle", "schema"))
	pyextension.Func("async_error", asyncError, pyextension.WithParams("handle"))
	pyextension.Func("async_close", asyncClose, pyextension.WithParams("handle"))
}

// ending is a context that ends with its handle, or before.
type ending struct {
	context.Context
	cancel context.CancelFunc
}

func (e *ending) Release() { e.cancel() }

// makeContext makes a context, whose deadline is past if overdue is set.
func makeContext(overdue bool) uint64 {
	ctx, cancel := context.WithCancel(context.Background())
	if overdue {
		ctx, cancel = context.WithTimeout(context.Background(), 0)
	}
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

// readerOf waits for the reader of the stream with a handle.
func readerOf(handle, within uint64) (*cdevice.RecordReader, error) {
	s, err := find[*asyncStream](handle)
	if err != nil {
		return nil, err
	}
	ctx, err := contextOf(within)
	if err != nil {
		return nil, err
	}
	return s.reader(ctx)
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

func asyncSchema(handle, within uint64) (*arrow.Schema, error) {
	r, err := readerOf(handle, within)
	if err != nil {
		return nil, err
	}
	return r.Schema(), nil
}

func asyncDeviceType(handle uint64) (int32, error) {
	r, err := readerOf(handle, 0)
	if err != nil {
		return 0, err
	}
	return int32(r.DeviceType()), nil
}

// asyncMetadata fills an ArrowSchema that has nothing but the metadata of the stream, which need not be text.
func asyncMetadata(handle, schema uint64) error {
	r, err := readerOf(handle, 0)
	if err != nil {
		return err
	}
	return exportMetadata(r.Metadata(), cdevice.SchemaFromPtr(uintptr(schema)))
}

func exportMetadata(md arrow.Metadata, out *cdata.CArrowSchema) error {
	return cdevice.ExportSchema(arrow.NewSchema(nil, &md), out)
}

// asyncNext returns the next batch, or nil at the end. The metadata of the batch goes to an ArrowSchema, as in asyncMetadata.
func asyncNext(handle, schema uint64) (*cdevice.RecordBatch, error) {
	r, err := readerOf(handle, 0)
	if err != nil {
		return nil, err
	}
	b, err := first(r.All())
	if b == nil {
		return nil, err
	}
	batch := b.(*cdevice.RecordBatch)
	if err := exportMetadata(batch.Metadata(), cdevice.SchemaFromPtr(uintptr(schema))); err != nil {
		batch.Release()
		return nil, err
	}
	return batch, nil
}

// asyncError returns the ProducerError that ended a stream, or nil for any other error. Its metadata is hexadecimal: it need
// not be text.
func asyncError(handle uint64) map[string]any {
	r, err := readerOf(handle, 0)
	if err == nil {
		err = r.Err()
	}
	var e *cdevice.ProducerError
	if !errors.As(err, &e) {
		return nil
	}
	metadata := map[string]any{}
	for key, value := range e.Metadata.ToMap() {
		metadata[hex.EncodeToString([]byte(key))] = hex.EncodeToString([]byte(value))
	}
	return map[string]any{"callback": e.Callback, "code": e.Code, "message": e.Message, "metadata": metadata}
}

// asyncClose ends a stream, whose handle stays.
func asyncClose(handle uint64) error {
	s, err := find[*asyncStream](handle)
	if err != nil {
		return err
	}
	return s.Close(context.Background())
}
