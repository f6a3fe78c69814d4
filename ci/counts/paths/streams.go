//go:build cgo && linux

package main

import (
	"context"
	"io"

	"github.com/arrowdevice/arrowdevice/cdata"
	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/ci/counts/probe"
	"github.com/arrowdevice/arrowdevice/device"
)

func streams(columns int) []path {
	b := wrapped(columns)
	out := probe.New[cdevice.CArrowDeviceArrayStream]()
	array, schema := lent(b), probe.New[cdata.CArrowSchema]()
	return []path{
		{"batch of a stream, read in C", times(columns), func(n int) {
			r := repeated(b, n)
			check(cdevice.ExportRecordReader(r, out))
			r.Release()
			mustBe(n, probe.Read(out))
		}},
		{"batch of a stream from C", times(columns), func(n int) {
			check(cdevice.ExportSchema(b.Schema(), schema))
			probe.Stream(array, schema, n, out)
			drain(must(cdevice.ImportRecordReader(out)), n)
		}},
		{"batch of an async stream", times(columns), func(n int) { async(repeated(b, n), n) }},
	}
}

// repeated is a reader of the batch n times.
func repeated(b *cdevice.RecordBatch, n int) *cdevice.RecordReader {
	next := func(context.Context) (*cdevice.RecordBatch, error) {
		if n == 0 {
			return nil, io.EOF
		}
		n--
		b.Retain()
		return b, nil
	}
	return must(cdevice.NewRecordReaderFunc(background, b.Schema(), device.CPU, next, nil))
}

func drain(r *cdevice.RecordReader, n int) {
	got := 0
	for _, err := range r.All() {
		check(err)
		got++
	}
	r.Release()
	mustBe(n, got)
}

// async is a stream from Go to Go, through the structs of C.
func async(r *cdevice.RecordReader, n int) {
	handler := new(cdevice.CArrowAsyncDeviceStreamHandler)
	stream := must(cdevice.ImportAsync(background, handler, 1))
	must(cdevice.ExportAsync(background, r, handler))
	in := must(stream.Reader(background))
	drain(in, n)
	r.Release()
}

func mustBe(want, got int) {
	if want != got {
		panic("the stream has another number of batches")
	}
}
