//go:build cgo

package main

import (
	"context"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/arrio"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

const (
	streamName     = "stream"
	wrapStream     = "wrap+stream"
	wrapStreamView = "wrap+stream+view"
	plainStreams   = "plain stream"
	wrapPlain      = "wrap+plain stream"
	wrapPlainView  = "wrap+plain stream+view"
)

func streamOperations(sub subject) []measurement {
	if sub.columns > 1000 { // so many batches would take too long
		return nil
	}
	return []measurement{
		{streamName, batchesThroughStream(streamName, deviceStream)},
		{wrapStream, readerThroughStream(wrapStream, deviceStream)},
		{wrapStreamView, readerToReader(wrapStreamView, deviceStream)},
		{plainStreams, batchesThroughStream(plainStreams, plainStream)},
		{wrapPlain, readerThroughStream(wrapPlain, plainStream)},
		{wrapPlainView, readerToReader(wrapPlainView, plainStream)},
	}
}

// Streams: one batch through an export and an import of a stream, and released; ours are
// device streams and plain ones. cdata's side, a plain stream, is the same in all: an arrow-go
// reader goes in, arrow-go batches come out.

// repeated is an arrow-go reader that gives the same batch so many times.
type repeated struct {
	rec  arrow.RecordBatch
	left int
}

func (r *repeated) Retain()                        {}
func (r *repeated) Release()                       {}
func (r *repeated) Schema() *arrow.Schema          { return r.rec.Schema() }
func (r *repeated) RecordBatch() arrow.RecordBatch { return r.rec }
func (r *repeated) Record() arrow.RecordBatch      { return r.rec }
func (r *repeated) Err() error                     { return nil }
func (r *repeated) Next() bool                     { r.left--; return r.left >= 0 }

var _ array.RecordReader = (*repeated)(nil)

// through is one way from a reader to a reader: it releases the one and returns the other.
type through func(*cdevice.RecordReader) *cdevice.RecordReader

// streaming measures n batches through one stream.
func streaming(name string, ours func(s shape, n int)) func(shape) operation {
	return func(s shape) operation {
		peers := []peer{{name: "cdata", do: cdataStream(s)}}
		return operation{
			ours:  side{do: func(n int) { ours(s, n) }},
			peers: append(peers, s.others(name)...),
			least: 32,
		}
	}
}

// batchesThroughStream begins with batches of ours, and ends with batches of ours.
func batchesThroughStream(name string, c through) func(shape) operation {
	return streaming(name, func(s shape, n int) {
		left := n
		next := func(context.Context) (*cdevice.RecordBatch, error) {
			if left == 0 {
				return nil, io.EOF
			}
			left--
			s.batch.Retain()
			return s.batch, nil
		}
		drain(c(must(cdevice.NewRecordReaderFunc(context.Background(), s.rec.Schema(), device.CPU, next, nil))), n)
	})
}

// readerThroughStream begins with an arrow-go reader, and ends with batches of ours.
func readerThroughStream(name string, c through) func(shape) operation {
	return streaming(name, func(s shape, n int) {
		drain(c(must(cdevice.WrapRecordReader(&repeated{s.rec, n}, device.CPUDevice()))), n)
	})
}

// readerToReader begins with an arrow-go reader, and ends with an arrow-go reader, of whose
// batches every column is asked for.
func readerToReader(name string, c through) func(shape) operation {
	return streaming(name, func(s shape, n int) {
		in := c(must(cdevice.WrapRecordReader(&repeated{s.rec, n}, device.CPUDevice())))
		defer in.Release()
		host := in.HostReader(context.Background(), nil)
		defer host.Release()
		for host.Next() {
			for _, column := range host.RecordBatch().Columns() {
				if column.Len() != rows {
					panic("bench: the column is short")
				}
			}
			n--
		}
		check(host.Err())
		mustBeZero(n)
	})
}

// deviceStream goes through an ArrowDeviceArrayStream.
func deviceStream(r *cdevice.RecordReader) *cdevice.RecordReader {
	out := new(cdevice.CArrowDeviceArrayStream)
	check(cdevice.ExportRecordReader(r, out))
	r.Release()
	return must(cdevice.ImportRecordReader(out))
}

// plainStream goes through an ArrowArrayStream, as cdata does.
func plainStream(r *cdevice.RecordReader) *cdevice.RecordReader {
	out := new(cdata.CArrowArrayStream)
	check(cdevice.ExportRecordReader(r, out))
	r.Release()
	return must(cdevice.ImportRecordReader(out))
}

func drain(in *cdevice.RecordReader, n int) {
	defer in.Release()
	for _, err := range in.All() {
		check(err)
		n--
	}
	mustBeZero(n)
}

func cdataStream(s shape) func(int) {
	return func(n int) {
		var out cdata.CArrowArrayStream
		cdata.ExportRecordReader(&repeated{s.rec, n}, &out)
		var in arrio.Reader = must(cdata.ImportCRecordReader(&out, s.rec.Schema()))
		for {
			_, err := in.Read() // it releases the batch before
			if err == io.EOF {
				break
			}
			check(err)
			n--
		}
		mustBeZero(n)
	}
}

func mustBeZero(n int) {
	if n != 0 {
		panic("bench: the stream ended early")
	}
}
