package main

// #include <stdint.h>
import "C"

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// sources counts iterators that run, and functions that may still be called.
var sources atomic.Int64

// failures are the ways in which a source can fail. The use of a nil pointer is not one
// in these tests: pytest's faulthandler has the signal that Go would make a panic of.
var failures = map[string]func(message string) error{
	"error":            errors.New,
	"invalid":          wrapping(arrow.ErrInvalid),
	"type":             wrapping(arrow.ErrType),
	"not_implemented":  wrapping(arrow.ErrNotImplemented),
	"not_supported":    wrapping(device.ErrNotSupported),
	"cancelled":        wrapping(context.Canceled),
	"deadline":         wrapping(context.DeadlineExceeded),
	"out_of_memory":    wrapping(syscall.ENOMEM),
	"no_space":         wrapping(syscall.ENOSPC),
	"end_inside":       wrapping(io.EOF), // which is no end
	"nothing":          func(string) error { return nil },
	"panic":            func(message string) error { panic(message) },
	"panic_with_error": func(message string) error { panic(wrapping(syscall.ENOMEM)(message)) },
	"runtime_error":    func(string) error { var none []error; return none[len(none)] },
	"goexit":           func(string) error { runtime.Goexit(); return nil },
}

func wrapping(err error) func(string) error {
	return func(message string) error { return fmt.Errorf("%s: %w", message, err) }
}

// source yields the objects of handles, then it ends or fails. It looks a handle up when its turn
// comes, so the owner must keep the object until then.
type source[T interface {
	comparable
	Release()
}] struct {
	handles    []C.uint64_t
	item       func(C.uint64_t) (T, error) // owned by the caller
	failsAfter int                         // items; below 0: never
	fail       func() error
	at         int
}

func (s *source[T]) next() (item T, err error) {
	if s.at == s.failsAfter {
		return item, s.fail()
	}
	if s.at == len(s.handles) {
		return item, io.EOF
	}
	s.at++
	return s.item(s.handles[s.at-1])
}

func (s *source[T]) iterate(yield func(T, error) bool) {
	sources.Add(1)
	defer sources.Add(-1)
	var none T
	for {
		item, err := s.next()
		if err == io.EOF {
			return
		}
		more := yield(item, err)
		if item != none {
			item.Release()
		}
		if !more {
			return
		}
	}
}

// golib_make_stream makes a stream of the objects of handles, in one of the ways that a program
// has. It is of the schema, or of the type, that the template has.
//
//export golib_make_stream
func golib_make_stream(how *C.char, template C.uint64_t, handles *C.uint64_t, count C.int, failsAfter C.int64_t, failure, message *C.char, out *C.uint64_t) *C.char {
	return create(out, func() (stream, error) {
		like, err := get(template)
		if err != nil {
			return nil, err
		}
		fails := failures[C.GoString(failure)]
		if fails == nil {
			return nil, fmt.Errorf("golib: no failure is called %q", C.GoString(failure))
		}
		text, how := C.GoString(message), C.GoString(how)
		fail := func() error { return fails(text) }
		of := append([]C.uint64_t(nil), unsafe.Slice(handles, count)...)
		switch like := like.(type) {
		case aBatch:
			return batchStream(how, like, &source[*cdevice.RecordBatch]{of, wholeBatch, int(failsAfter), fail, 0})
		case anArray:
			return arrayStream(how, like, &source[*cdevice.Array]{of, wholeArray, int(failsAfter), fail, 0})
		}
		return nil, fmt.Errorf("golib: no stream is made of %T", like)
	})
}

func wholeBatch(handle C.uint64_t) (*cdevice.RecordBatch, error) {
	b, err := batchOf(handle)
	if err != nil {
		return nil, err
	}
	return b.Slice(0, b.NumRows())
}

func wholeArray(handle C.uint64_t) (*cdevice.Array, error) {
	t, err := get(handle)
	if err != nil {
		return nil, err
	}
	a, ok := t.(anArray)
	if !ok {
		return nil, fmt.Errorf("golib: handle %d is not an array", handle)
	}
	return a.Slice(0, a.Len())
}

func batchStream(how string, like aBatch, s *source[*cdevice.RecordBatch]) (stream, error) {
	t := like.DeviceID().Type
	switch how {
	case "iterator":
		r, err := cdevice.NewRecordReader(like.Schema(), t, s.iterate)
		return batches{r}, err
	case "function":
		sources.Add(1)
		r, err := cdevice.NewRecordReaderFunc(context.Background(), like.Schema(), t, func(context.Context) (*cdevice.RecordBatch, error) { return s.next() }, func() { sources.Add(-1) })
		return batches{r}, err
	case "table":
		views, err := views[arrow.RecordBatch](s.handles)
		defer releaseAll(views)
		if err != nil {
			return nil, err
		}
		table := array.NewTableFromRecords(like.Schema(), views)
		defer table.Release()
		return wrapReader(array.NewTableReader(table, -1))
	}
	return nil, fmt.Errorf("golib: no stream of batches is made of a %q", how)
}

func arrayStream(how string, like anArray, s *source[*cdevice.Array]) (stream, error) {
	switch how {
	case "iterator":
		r, err := cdevice.NewArrayReader(like.Field(), like.DeviceID().Type, s.iterate)
		return arrays{r}, err
	case "chunked":
		views, err := views[arrow.Array](s.handles)
		defer releaseAll(views)
		if err != nil {
			return nil, err
		}
		chunked := arrow.NewChunked(like.DataType(), views)
		defer chunked.Release()
		r, err := cdevice.WrapChunked(chunked, device.CPUDevice())
		return arrays{r}, err
	}
	return nil, fmt.Errorf("golib: no stream of arrays is made of a %q", how)
}

// views returns owned host views, also with an error.
func views[T hostView](handles []C.uint64_t) (all []T, _ error) {
	for _, handle := range handles {
		view, err := viewOf(handle)
		if err != nil {
			return all, err
		}
		all = append(all, view.(T))
	}
	return all, nil
}

func releaseAll[T hostView](all []T) {
	for _, view := range all {
		view.Release()
	}
}
