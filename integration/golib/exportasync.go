//go:build cgo

package main

/*
#include <stdint.h>

// The answer of a source in Python: a batch, or an error, or neither at its end. The source owns
// all of it, and keeps it until it is called again.
typedef struct {
	uint64_t batch;     // a handle, which Go drops
	uintptr_t metadata; // of the batch, as ArrowSchema has it; 0: none
	const char* failure;
	const char* message;
} golib_item;

// With NULL, it is not called again.
typedef void (*golib_source)(uint64_t number, golib_item* item);

static inline golib_source golib_source_at(uintptr_t address) { return (golib_source)address; }

static inline void golib_ask_source(golib_source ask, uint64_t number, golib_item* item) { ask(number, item); }
*/
import "C"

import (
	"context"
	"fmt"
	"io"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/schema"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func init() {
	pyextension.Func("export_async", exportAsync,
		pyextension.WithParams("ask", "number", "like", "handler", "context", "device_type", "device_id"))
	pyextension.Func("forward_async", forwardAsync, pyextension.WithParams("handle", "handler"))
}

// pySource is a source that is written in Python.
type pySource struct {
	ask    C.golib_source
	number C.uint64_t
}

// next returns a batch that is the caller's.
func (s pySource) next(context.Context) (*cdevice.RecordBatch, error) {
	var item C.golib_item
	C.golib_ask_source(s.ask, s.number, &item)
	switch {
	case item.failure != nil:
		fail := failures[C.GoString(item.failure)]
		if fail == nil {
			return nil, fmt.Errorf("golib: no failure is called %q", C.GoString(item.failure))
		}
		return nil, fail(C.GoString(item.message))
	case item.batch == 0:
		return nil, io.EOF
	}
	b, err := find[*cdevice.RecordBatch](uint64(item.batch))
	if err != nil {
		return nil, err
	}
	b.Retain()
	if err := drop(uint64(item.batch)); err != nil {
		return nil, err
	}
	md, err := schema.ReadMetadata("golib_item.metadata", uintptr(item.metadata))
	if err != nil || md.Len() == 0 {
		return b, err
	}
	defer b.Release()
	return b.WithMetadata(md), nil
}

func (s pySource) stop() { C.golib_ask_source(s.ask, s.number, nil) }

// exportAsync gives the batches of a source, the C function ask and a number, which are of the schema and on the type of device
// that like is, to the ArrowAsyncDeviceStreamHandler at an address. Batches are copied to a device before, unless deviceType is 0.
func exportAsync(ask, number uint64, like *cdevice.RecordBatch, handler, within uint64, deviceType int32, id int64) error {
	s := pySource{C.golib_source_at(C.uintptr_t(ask)), C.uint64_t(number)}
	ctx, err := contextOf(within)
	if err != nil {
		s.stop()
		return err
	}
	r, err := cdevice.NewRecordReaderFunc(context.Background(), like.Schema(), like.DeviceID().Type, s.next, s.stop)
	if err != nil {
		s.stop()
		return err
	}
	defer r.Release()
	if deviceType != 0 {
		dev, err := openDevice(deviceType, id)
		if err != nil {
			return err
		}
		if r, err = r.CopyTo(ctx, dev); err != nil {
			return err
		}
		defer r.Release()
	}
	_, err = cdevice.ExportAsync(ctx, r, cdevice.AsyncDeviceStreamHandlerFromPtr(uintptr(handler)))
	return err
}

// forwardAsync forwards one asynchronous stream to the handler of another one. It waits for the schema.
func forwardAsync(handle, handler uint64) error {
	r, err := readerOf(handle)
	if err != nil {
		return err
	}
	_, err = cdevice.ExportAsync(context.Background(), r, cdevice.AsyncDeviceStreamHandlerFromPtr(uintptr(handler)))
	return err
}
