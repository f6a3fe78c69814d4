//go:build cgo

package cdata

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/argument"
)

// CreateAsyncDeviceStreamHandler fills *out with the callbacks of a new stream, for a producer of record
// batches. The channel delivers the stream when the producer has given its schema, or an error, and is closed.
//
// queueSize is the number of batches that are requested ahead, at most 1,048,576; 0 stands for 4. As many more, at most
// 1,024, wait in the channel. The program takes the messages until Stream is closed. If ctx ends before the end was
// delivered, the producer's cancel is called, the batches in the channel are released, and the last message is ctx's
// error. The record batches are the program's to release.
//
// *out must not move before the producer has released it. It panics if out is nil.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#async-device-stream-interface
func CreateAsyncDeviceStreamHandler(ctx context.Context, queueSize uint64, out *CArrowAsyncDeviceStreamHandler) <-chan AsyncRecordBatchStream {
	if ctx == nil {
		ctx = context.Background()
	}
	const mostRequested, mostReady = 1 << 20, 1 << 10
	imported, err := cdevice.ImportAsync(ctx, (*cdevice.CArrowAsyncDeviceStreamHandler)(unsafe.Pointer(out)), int(min(queueSize, mostRequested)), likeArrowGo)
	must("CreateAsyncDeviceStreamHandler", err)
	opened := make(chan AsyncRecordBatchStream, 1)
	go func() {
		defer close(opened)
		r, err := imported.Reader(ctx)
		if err != nil {
			opened <- AsyncRecordBatchStream{Err: asyncError(err)}
			return
		}
		messages := make(chan RecordMessage, max(1, min(queueSize, mostReady)))
		opened <- AsyncRecordBatchStream{Schema: r.Schema(), AdditionalMetadata: r.Metadata(), Stream: messages}
		go deliver(ctx, r, messages)
	}()
	return opened
}

// deliver sends the batches of r, and the error that ends it. It takes the reference to r.
func deliver(ctx context.Context, r *cdevice.RecordReader, to chan RecordMessage) {
	defer close(to)
	defer r.Release()
	for batch, err := range r.All() {
		message := RecordMessage{Err: asyncError(err)}
		if err == nil {
			message = messageOf(batch, r.Schema())
		} else if ctx.Err() != nil {
			drain(to)
		}
		select {
		case to <- message:
			continue
		case <-ctx.Done():
		}
		release(message)
		drain(to)
		to <- RecordMessage{Err: ctx.Err()}
		return
	}
}

// drain releases the messages that a channel has.
func drain(messages <-chan RecordMessage) {
	for {
		select {
		case m := <-messages:
			release(m)
		default:
			return
		}
	}
}

func messageOf(batch *cdevice.RecordBatch, schema *arrow.Schema) RecordMessage {
	rec, err := viewBorrowed(batch, schema)
	return RecordMessage{Record: rec, AdditionalMetadata: batch.Metadata(), Err: err}
}

func release(m RecordMessage) {
	if m.Record != nil {
		m.Record.Release()
	}
}

// asyncError returns the error of a stream as arrow-go's package reports what a producer reported.
func asyncError(err error) error {
	var reported *cdevice.ProducerError
	if !errors.As(err, &reported) {
		return err
	}
	e := AsyncStreamError{Code: reported.Code, Msg: reported.Message}
	if e.Msg == "" {
		e.Msg = reported.Error()
	}
	if reported.Metadata.Len() > 0 {
		e.Metadata = reported.Metadata.String()
	}
	return e
}

// ExportAsyncRecordBatchStream gives the batches of a channel to a handler, and returns when the handler was
// released: after the channel was closed, a message had an error, or the consumer has cancelled the stream. It
// takes the references to the record batches that it receives. After an error or a cancel, messages that are
// left in the channel are the program's.
//
// It returns nil if all batches were delivered and if the consumer has cancelled, the error of the message
// that ended the stream, or one that wraps the code, as a syscall.Errno, that a callback of the consumer returned, such as
// on_schema of a consumer that has ended before.
// The consumer is told the errno of the error if it wraps one, or stands for one as context.Canceled does, and
// EINVAL otherwise.
//
// It takes ownership of *handler, even if it returns an error.
func ExportAsyncRecordBatchStream(schema *arrow.Schema, stream <-chan RecordMessage, handler *CArrowAsyncDeviceStreamHandler) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel() // interrupts the read of a message that is taken ahead
	r, err := readerOf(ctx, schema, stream)
	if err != nil {
		return fmt.Errorf("cdata: ExportAsyncRecordBatchStream: %w", err)
	}
	defer r.Release()
	export, err := cdevice.ExportAsync(context.Background(), r, (*cdevice.CArrowAsyncDeviceStreamHandler)(unsafe.Pointer(handler)))
	if err != nil {
		return fmt.Errorf("cdata: ExportAsyncRecordBatchStream: %w", err)
	}
	err = export.Wait(context.Background())
	var failed *messageError
	var refused syscall.Errno
	switch {
	case errors.As(err, &failed):
		return failed.err
	case errors.As(err, &refused):
		return err
	case errors.Is(err, context.Canceled): // by the consumer
		return nil
	}
	return err
}

func readerOf(ctx context.Context, schema *arrow.Schema, stream <-chan RecordMessage) (*cdevice.RecordReader, error) {
	if schema == nil {
		err := fmt.Errorf("%w: ExportAsyncRecordBatchStream: schema = nil: must have non-nil schema", arrow.ErrInvalid)
		return cdevice.NewFailedRecordReader(device.CPU, &messageError{err})
	}
	return cdevice.NewRecordReaderFunc(ctx, schema, device.CPU, func(ctx context.Context) (*cdevice.RecordBatch, error) {
		select {
		case message, ok := <-stream:
			if !ok {
				return nil, io.EOF
			}
			return batchOf(message)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}, nil)
}

// batchOf returns the batch of a message, and takes the reference to its record batch.
func batchOf(m RecordMessage) (*cdevice.RecordBatch, error) {
	if !argument.IsNil(m.Record) {
		defer m.Record.Release()
	}
	if m.Err != nil {
		return nil, &messageError{m.Err}
	}
	batch, err := cdevice.WrapRecordBatch(m.Record, countingCPU)
	if err != nil {
		return nil, &messageError{err}
	}
	if m.AdditionalMetadata.Len() == 0 {
		return batch, nil
	}
	defer batch.Release()
	return batch.WithMetadata(m.AdditionalMetadata), nil
}

// messageError is the error of a message. Unless it says more, its code is EINVAL, as arrow-go's.
type messageError struct{ err error }

func (e *messageError) Error() string { return e.err.Error() }

func (e *messageError) Unwrap() []error {
	for _, coded := range []error{context.Canceled, context.DeadlineExceeded, device.ErrNotSupported, arrow.ErrNotImplemented} {
		if errors.Is(e.err, coded) {
			return []error{e.err}
		}
	}
	return []error{e.err, syscall.EINVAL} // of two errnos, the first one counts
}
