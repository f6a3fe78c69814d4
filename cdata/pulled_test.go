//go:build cgo

package cdata_test

import (
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"

	"github.com/arrowdevice/arrowdevice/cdata"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/internal/errno"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// The process ends, and this test with it, where the iterator is resumed on another thread or one callback deeper. Package cdevice
// has the other ways in which such a reader is read.
func TestReaderOfIteratorMadeInCallback(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	batches := []arrow.RecordBatch{numbers(t, 0), numbers(t, 1)}
	export := func(out *cdata.CArrowArrayStream) {
		r := array.ReaderFromIter(batches[0].Schema(), func(yield func(arrow.RecordBatch, error) bool) {
			for _, b := range batches {
				b.Retain() // for the reader
				if !yield(b, nil) {
					return
				}
			}
		})
		defer r.Release()
		cdata.ExportRecordReader(r, out)
	}
	out := new(cdata.CArrowArrayStream)
	stream := streamMirror(out)
	assert.Equal(t, cpeer.Drained{Format: true, Batches: 2, Sum: 1}, cpeer.CallAndDrainOnThread(func() { export(out) }, stream))
	cpeer.CallBack(func() { export(out) })
	assert.Equal(t, cpeer.Drained{Format: true, NextCode: errno.Code(syscall.EINVAL), Text: true}, cpeer.Drain(stream))
	cpeer.CallBack(func() { export(out) }) // which releases the one before
	cdata.ReleaseCArrowArrayStream(out)
	cpeer.CallBack(func() { export(out); cdata.ReleaseCArrowArrayStream(out) })
}
