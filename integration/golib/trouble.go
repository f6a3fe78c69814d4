//go:build cgo

package main

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// troubles are what the code of a stream does instead of making a batch.
var troubles = map[string]func(){
	"panic":  func() { panic("out of cheese") },
	"error":  func() { panic(errors.New("out of cheese")) },
	"goexit": runtime.Goexit,
}

// troubled is a stream without batches that ends in trouble: of a function, or of an iterator.
func troubled(kind string, iterator bool) (*cdevice.RecordReader, error) {
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	cause := troubles[kind]
	if iterator {
		return cdevice.NewRecordReader(schema, device.CPU, func(func(*cdevice.RecordBatch, error) bool) { cause() })
	}
	return cdevice.NewRecordReaderFunc(context.Background(), schema, device.CPU, func(context.Context) (*cdevice.RecordBatch, error) {
		cause()
		return nil, io.EOF
	}, nil)
}

// readAtRelease returns a stream without batches. Its release waits for the end of another one, which is read elsewhere.
func readAtRelease(other *cdevice.RecordReader) (*cdevice.RecordReader, error) {
	other.Retain()
	end := func(context.Context) (*cdevice.RecordBatch, error) { return nil, io.EOF }
	return cdevice.NewRecordReaderFunc(context.Background(), other.Schema(), other.DeviceType(), end, func() {
		read := make(chan struct{})
		go func() {
			defer close(read)
			for other.Next() {
			}
			other.Release()
		}()
		<-read
	})
}

var endedContexts atomic.Int64

// watchContext counts the end of the context of a stream.
func watchContext(ctx context.Context, r *cdevice.RecordReader) *cdevice.RecordReader {
	context.AfterFunc(ctx, func() { endedContexts.Add(1) })
	return r
}
