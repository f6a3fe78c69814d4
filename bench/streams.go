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

// batchesThroughStream begins with batches of ours, and ends with batches of ours.
func batchesThroughStream(s shape, name string, c through) operation {
	batch := must(cdevice.WrapRecordBatch(s.rec, device.CPUDevice()))
	return operation{
		name: name,
		ours: func(n int) {
			left := n
			next := func() (*cdevice.RecordBatch, error) {
				if left == 0 {
					return nil, io.EOF
				}
				left--
				batch.Retain()
				return batch, nil
			}
			drain(c(must(cdevice.NewRecordReaderFunc(s.rec.Schema(), device.CPU, next, nil))), n)
		},
		peers: []peer{{"cdata", cdataStream(s)}},
		close: batch.Release,
	}
}

// readerThroughStream begins with an arrow-go reader, and ends with batches of ours.
func readerThroughStream(s shape, name string, c through) operation {
	return operation{
		name: name,
		ours: func(n int) {
			drain(c(must(cdevice.WrapRecordReader(&repeated{s.rec, n}, device.CPUDevice()))), n)
		},
		peers: []peer{{"cdata", cdataStream(s)}},
	}
}

// readerToReader begins with an arrow-go reader, and ends with an arrow-go reader.
func readerToReader(s shape, name string, c through) operation {
	return operation{
		name: name,
		ours: func(n int) {
			in := c(must(cdevice.WrapRecordReader(&repeated{s.rec, n}, device.CPUDevice())))
			defer in.Release()
			host := in.HostReader(context.Background(), nil)
			defer host.Release()
			for host.Next() {
				n--
			}
			check(host.Err())
			mustBeZero(n)
		},
		peers: []peer{{"cdata", cdataStream(s)}},
	}
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
	check(cdevice.ExportPlainRecordReader(r, out))
	r.Release()
	return must(cdevice.ImportPlainRecordReader(out))
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
