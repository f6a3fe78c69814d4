//go:build cgo && linux

package main

import (
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/cdata"
	"github.com/arrowdevice/arrowdevice/ci/counts/probe"
)

// dropIn are the paths of package cdata.
func dropIn(columns int) []path {
	rec, out, stream := numbers(columns), probe.New[cdata.CArrowArray](), probe.New[cdata.CArrowArrayStream]()
	array := (*cdata.CArrowArray)(unsafe.Pointer(&lent(wrapped(columns)).Array))
	return []path{
		each("cdata: export, release in C", times(columns), func() {
			cdata.ExportArrowRecordBatch(rec, out, nil)
			probe.Release(out)
		}),
		each("cdata: import from C, release", times(columns), func() {
			*out = *array
			must(cdata.ImportCRecordBatchWithSchema(out, rec.Schema())).Release()
		}),
		{"cdata: batch of a stream, read in C", times(columns), func(n int) {
			cdata.ExportRecordReader(&reader{rec, n}, stream)
			mustBe(n, probe.ReadPlain(stream))
		}},
	}
}

// reader is an arrow-go reader of the batch some more times.
type reader struct {
	rec  arrow.RecordBatch
	left int
}

var _ array.RecordReader = (*reader)(nil)

func (r *reader) Retain()                        {}
func (r *reader) Release()                       {}
func (r *reader) Schema() *arrow.Schema          { return r.rec.Schema() }
func (r *reader) RecordBatch() arrow.RecordBatch { return r.rec }
func (r *reader) Record() arrow.RecordBatch      { return r.rec }
func (r *reader) Err() error                     { return nil }
func (r *reader) Next() bool                     { r.left--; return r.left >= 0 }
