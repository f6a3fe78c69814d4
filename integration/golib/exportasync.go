package main

/*
#include <stdint.h>

// The answer of a source in Python: a batch, or an error, or neither at its end. The source owns
// all of it, and keeps it until it is called again.
typedef struct {
	uint64_t batch;     // a handle
	uintptr_t metadata; // of the batch, as ArrowSchema has it; 0: none
	const char* failure;
	const char* message;
} golib_item;

// With NULL, it is not called again.
typedef void (*golib_source)(uint64_t number, golib_item* item);

static inline void golib_ask_source(golib_source ask, uint64_t number, golib_item* item) { ask(number, item); }
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/schema"
)

// asyncFailures are the ways in which a source can fail.
var asyncFailures = map[string]func(message string) error{
	"error":           errors.New,
	"invalid":         func(m string) error { return fmt.Errorf("%s: %w", m, arrow.ErrInvalid) },
	"not_implemented": func(m string) error { return fmt.Errorf("%s: %w", m, arrow.ErrNotImplemented) },
	"not_supported":   func(m string) error { return fmt.Errorf("%s: %w", m, device.ErrNotSupported) },
	"no_space":        func(m string) error { return fmt.Errorf("%s: %w", m, syscall.ENOSPC) },
	"cancelled":       func(m string) error { return fmt.Errorf("%s: %w", m, context.Canceled) },
	"panic":           func(m string) error { panic(m) },
	"goexit":          func(string) error { runtime.Goexit(); return nil },
}

// pySource is a source that is written in Python.
type pySource struct {
	ask    C.golib_source
	number C.uint64_t
}

// next returns a batch that is the caller's.
func (s pySource) next() (*cdevice.RecordBatch, error) {
	var item C.golib_item
	C.golib_ask_source(s.ask, s.number, &item)
	switch {
	case item.failure != nil:
		fail := asyncFailures[C.GoString(item.failure)]
		if fail == nil {
			return nil, fmt.Errorf("golib: no failure is called %q", C.GoString(item.failure))
		}
		return nil, fail(C.GoString(item.message))
	case item.batch == 0:
		return nil, io.EOF
	}
	b, err := batchOf(item.batch)
	if err != nil {
		return nil, err
	}
	md, err := schema.ReadMetadata("golib_item.metadata", uintptr(item.metadata))
	if err != nil {
		return nil, err
	}
	if md.Len() > 0 {
		return b.WithMetadata(md), nil
	}
	b.Retain()
	return b, nil
}

func (s pySource) stop() { C.golib_ask_source(s.ask, s.number, nil) }

// golib_export_async gives the batches of a source, which are of the schema and on the
// type of device that a template is, to the struct ArrowAsyncDeviceStreamHandler at an
// address. The metadata is of the stream, as ArrowSchema has it. Batches are copied to a
// device before, unless deviceType is 0.
//
//export golib_export_async
func golib_export_async(ask C.golib_source, number, template C.uint64_t, handler, metadata C.uintptr_t, ctx C.uint64_t, deviceType C.int32_t, deviceID C.int64_t) *C.char {
	return guard(func() error {
		s := pySource{ask, number}
		like, err := batchOf(template)
		var md arrow.Metadata
		if err == nil {
			md, err = schema.ReadMetadata("metadata", uintptr(metadata))
		}
		if err != nil {
			s.stop()
			return err
		}
		r, err := cdevice.NewRecordReaderFunc(context.Background(), like.Schema(), like.DeviceID().Type, func(context.Context) (*cdevice.RecordBatch, error) { return s.next() }, s.stop)
		if err != nil {
			s.stop()
			return err
		}
		defer r.Release()
		if deviceType != 0 {
			if r, err = copyTo(contextOf(ctx), r, deviceType, deviceID); err != nil {
				return err
			}
			defer r.Release()
		}
		return cdevice.ExportAsync(contextOf(ctx), r.WithMetadata(md), cdevice.AsyncDeviceStreamHandlerFromPtr(uintptr(handler)))
	})
}

// copyTo is a reader of copies on a device.
func copyTo(ctx context.Context, r *cdevice.RecordReader, deviceType C.int32_t, deviceID C.int64_t) (*cdevice.RecordReader, error) {
	dev, err := openDevice(deviceType, deviceID)
	if err != nil {
		return nil, err
	}
	return r.CopyTo(ctx, dev)
}

// golib_forward_async forwards one asynchronous stream to the handler of another one. It waits for
// the schema.
//
//export golib_forward_async
func golib_forward_async(from C.uint64_t, handler C.uintptr_t, ctx C.uint64_t) *C.char {
	return guard(func() error {
		r, err := of[*asyncStream](from).reader(contextOf(ctx))
		if err != nil {
			return err
		}
		return cdevice.ExportAsync(contextOf(ctx), r, cdevice.AsyncDeviceStreamHandlerFromPtr(uintptr(handler)))
	})
}
