//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync/atomic"
	"syscall"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func init() {
	pyextension.Func("make_stream", makeStream,
		pyextension.WithParams("how", "like", "handles", "fails_after", "failure", "message"))
}

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

// source yields the items of handles, then it ends or fails. It looks a handle up when its turn comes, so the owner must
// keep the item until then.
type source[T interface {
	comparable
	item
}] struct {
	handles    []uint64
	failsAfter int64 // items; below 0: never
	fail       func() error
	at         int
}

func (s *source[T]) next(context.Context) (item T, err error) {
	if int64(s.at) == s.failsAfter {
		return item, s.fail()
	}
	if s.at == len(s.handles) {
		return item, io.EOF
	}
	s.at++
	if item, err = find[T](s.handles[s.at-1]); err == nil {
		item.Retain()
	}
	return item, err
}

func (s *source[T]) iterate(yield func(T, error) bool) {
	sources.Add(1)
	defer sources.Add(-1)
	var none T
	for {
		item, err := s.next(context.Background())
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

// makeStream makes a stream of the items of handles, in one of the ways that a program has. It is of the schema, or of the
// type, that like has.
func makeStream(how string, like any, handles []uint64, failsAfter int64, failure, message string) (uint64, error) {
	fails := failures[failure]
	if fails == nil {
		return 0, fmt.Errorf("golib: no failure is called %q", failure)
	}
	fail := func() error { return fails(message) }
	made, err := either(like,
		func(like *cdevice.Array) (stream, error) {
			return arrayStream(how, like, &source[*cdevice.Array]{handles, failsAfter, fail, 0})
		},
		func(like *cdevice.RecordBatch) (stream, error) {
			return batchStream(how, like, &source[*cdevice.RecordBatch]{handles, failsAfter, fail, 0})
		})
	if err != nil {
		return 0, err
	}
	return put(made.(stream)), nil
}

func batchStream(how string, like *cdevice.RecordBatch, s *source[*cdevice.RecordBatch]) (stream, error) {
	t := like.DeviceID().Type
	switch how {
	case "iterator":
		r, err := cdevice.NewRecordReader(like.Schema(), t, s.iterate)
		return batches{r}, err
	case "function":
		sources.Add(1)
		r, err := cdevice.NewRecordReaderFunc(context.Background(), like.Schema(), t, s.next, func() { sources.Add(-1) })
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

func arrayStream(how string, like *cdevice.Array, s *source[*cdevice.Array]) (stream, error) {
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
func views[T hostView](handles []uint64) (all []T, _ error) {
	for _, handle := range handles {
		i, err := find[item](handle)
		if err != nil {
			return all, err
		}
		view, err := viewOf(context.Background(), i)
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
