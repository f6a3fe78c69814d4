//go:build cgo

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/pyextension"
)

func init() {
	pyextension.Func("jobs", jobNames)
	pyextension.Func("make", makeJob, pyextension.WithParams("name"), pyextension.WithDoc("The number of an exchange, and its array or batch. NotImplementedError: ForCuDF refuses it."))
	pyextension.Func("open_after", openAfter, pyextension.WithParams("exchange", "microseconds"))
	pyextension.Func("is_held", isHeld, pyextension.WithParams("exchange"))
	pyextension.Func("compare_array", compareArray, pyextension.WithParams("exchange", "array"))
	pyextension.Func("compare_batch", compareBatch, pyextension.WithParams("exchange", "batch"))
	pyextension.Func("rows", rows, pyextension.WithParams("exchange"))
	pyextension.Func("end", endExchange, pyextension.WithParams("exchange"))
	pyextension.Func("live", readLive)
	pyextension.Func("numbered_stream", numberedStream, pyextension.WithParams("batches"))
	pyextension.Func("compare_numbered", compareNumbered, pyextension.WithParams("number", "batch"))
}

// makeJob is kit_make. The object has a reference of its own.
func makeJob(name string) (int64, any, error) {
	job, err := findJob(name)
	if err != nil {
		return 0, nil, err
	}
	x, reason, err := begin(job)
	if err != nil {
		return 0, nil, err
	}
	if reason != "" {
		return 0, nil, refused(reason)
	}
	value := x.made.value()
	value.(interface{ Retain() }).Retain()
	return int64(exchanges.put(x)), value, nil
}

// refused is a NotImplementedError in Python.
func refused(reason string) error { return &refusedError{reason} }

type refusedError struct{ reason string }

func (e *refusedError) Error() string { return e.reason }
func (e *refusedError) Unwrap() error { return arrow.ErrNotImplemented }

func openAfter(exchange, microseconds int64) error {
	x, err := exchanges.get(uint64(exchange))
	if err == nil {
		x.pending.openAfter(time.Duration(microseconds) * time.Microsecond)
	}
	return err
}

func isHeld(exchange int64) (bool, error) {
	x, err := exchanges.get(uint64(exchange))
	return err == nil && x.pending.held(), err
}

// compareArray returns the device that an array came back on, the type that changed, and the difference.
func compareArray(exchange int64, a *cdevice.Array) (string, string, string, error) {
	return compareMade(exchange, madeArray{a}, a.DeviceID())
}

// compareBatch is compareArray for a batch.
func compareBatch(exchange int64, b *cdevice.RecordBatch) (string, string, string, error) {
	return compareMade(exchange, madeBatch{b}, b.DeviceID())
}

func compareMade(exchange int64, back made, at device.ID) (string, string, string, error) {
	x, err := exchanges.get(uint64(exchange))
	if err != nil {
		return "", "", "", err
	}
	r, err := x.compare(back)
	return at.String(), r.changed, r.different, err
}

func rows(exchange int64) (int64, error) {
	x, err := exchanges.get(uint64(exchange))
	if err != nil {
		return 0, err
	}
	return x.want.NumRows(), nil
}

func endExchange(exchange int64) error {
	x, err := exchanges.take(uint64(exchange))
	if err != nil {
		return err
	}
	return x.end()
}

// numberedStream is a stream of the batches of [numbered] on the GPU, each made when it is asked for.
func numberedStream(batches int64) (*cdevice.RecordReader, error) {
	first, err := numberedBatch(0)
	if err != nil {
		return nil, err
	}
	defer first.Release()
	next := int64(0)
	return cdevice.NewRecordReaderFunc(context.Background(), first.Schema(), device.CUDA, func(context.Context) (*cdevice.RecordBatch, error) {
		if next == batches {
			return nil, io.EOF
		}
		next++
		return numberedBatch(next - 1)
	}, nil)
}

// late are the ends of exchanges whose arrays were handed on with pending work.
var late sync.WaitGroup

// numberedBatch is a batch whose values arrive later.
func numberedBatch(number int64) (*cdevice.RecordBatch, error) {
	x, err := beginNumbered(number)
	if err != nil {
		return nil, err
	}
	b := x.made.value().(*cdevice.RecordBatch)
	b.Retain()
	late.Go(func() {
		time.Sleep(time.Millisecond)
		if err := x.end(); err != nil {
			fmt.Fprintf(os.Stderr, "batch %d: %v\n", number, err)
		}
	})
	return b, nil
}

func compareNumbered(number int64, b *cdevice.RecordBatch) (string, error) {
	x, err := beginNumbered(number)
	if err != nil {
		return "", err
	}
	r, err := x.compare(madeBatch{b})
	return r.different, errors.Join(err, x.end())
}
