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

// Streams: a reader is exported, and a consumer in C reads the stream to its end. It releases each array before it asks
// for the next one, or on a thread of its own as many as heldArrays says. Ours are device streams; those of cdata and
// of arrow-rs are plain ones, and begin with a reader of record batches each time.
const (
	streamToC      = "stream, read in C"
	streamToThread = "stream, read in C, released on another thread"
	wrapStreamToC  = "wrap+stream, read in C"
	streamInGo     = "stream, both ends in Go"
)

func streamOperations(sub subject) []measurement {
	if sub.columns > 1000 { // so many batches would take too long
		return nil
	}
	all := []measurement{
		{streamToC, streaming(streamToC, false, readerOfBatches)},
		{wrapStreamToC, streaming(wrapStreamToC, false, wrappedReader)},
		{streamInGo, streamingInGo},
	}
	if sub.name == "int64" {
		all = append(all, measurement{streamToThread, streaming(streamToC, true, readerOfBatches)})
	}
	return all
}

// inStream is how many batches a stream has at least: its beginning is to count little.
const inStream = 32

// streaming measures n batches through one stream. name is the operation of libraries in other languages.
func streaming(name string, elsewhere bool, open func(s shape, n int) *cdevice.RecordReader) func(shape) operation {
	return func(s shape) operation {
		to, from := s.consumer(elsewhere), s.consumer(elsewhere)
		ours := func(n int) {
			reader, out := open(s, n), new(cdevice.CArrowDeviceArrayStream)
			check(cdevice.ExportRecordReader(reader, out))
			reader.Release()
			mustBeZero(n - must(to.ReadDevice(out)))
		}
		theirs := func(n int) {
			out := new(cdata.CArrowArrayStream)
			cdata.ExportRecordReader(&repeated{s.rec, n}, out)
			mustBeZero(n - must(from.Read(out)))
		}
		peers := append([]peer{{name: "cdata", do: theirs, close: from.Close}}, s.floor(name, elsewhere)...)
		return operation{
			ours:  side{do: ours},
			peers: append(peers, s.others(name, elsewhere)...),
			least: max(inStream, held(s.columns, elsewhere)),
			close: to.Close,
		}
	}
}

// readerOfBatches gives a batch that was wrapped before.
func readerOfBatches(s shape, n int) *cdevice.RecordReader {
	next := func(context.Context) (*cdevice.RecordBatch, error) {
		if n == 0 {
			return nil, io.EOF
		}
		n--
		s.batch.Retain()
		return s.batch, nil
	}
	return must(cdevice.NewRecordReaderFunc(context.Background(), s.rec.Schema(), device.CPU, next, nil))
}

// wrappedReader begins with an arrow-go reader.
func wrappedReader(s shape, n int) *cdevice.RecordReader {
	return must(cdevice.WrapRecordReader(&repeated{s.rec, n}, device.CPUDevice()))
}

// streamingInGo is batches through an export and an import of a stream, in one process of Go.
func streamingInGo(s shape) operation {
	ours := func(n int) {
		reader, out := readerOfBatches(s, n), new(cdevice.CArrowDeviceArrayStream)
		check(cdevice.ExportRecordReader(reader, out))
		reader.Release()
		drain(must(cdevice.ImportRecordReader(out)), n)
	}
	return operation{ours: side{do: ours}, peers: []peer{{name: "cdata", do: cdataStream(s)}}, least: inStream}
}

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
