//go:build cgo

package cdata_test

import (
	"errors"
	"os"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdata"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/goroutineleak"
)

func TestMain(m *testing.M) { os.Exit(goroutineleak.Run(m)) }

var errSource = errors.New("disk on fire")

// numbers is a batch of one column of int64, in memory of the Go heap.
func numbers(t *testing.T, values ...int64) arrow.RecordBatch {
	t.Helper()
	rec := numbersIn(memory.DefaultAllocator, values)
	t.Cleanup(rec.Release)
	return rec
}

// numbersIn is a batch of numbers that is the caller's.
func numbersIn(mem memory.Allocator, values []int64) arrow.RecordBatch {
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)
	b := array.NewRecordBuilder(mem, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues(values, nil)
	return b.NewRecordBatch()
}

// valuesOf are the values of a batch of numbers.
func valuesOf(rec arrow.RecordBatch) []int64 { return rec.Column(0).(*array.Int64).Int64Values() }

// source is a program's own reader: what a test does not set does nothing.
type source struct {
	array.RecordReader // of its batches
	schema             func() *arrow.Schema
	next               func()
	err                error
	retains, releases  int
}

func newSource(t *testing.T, batches ...arrow.RecordBatch) *source {
	t.Helper()
	schema := numbers(t).Schema()
	if len(batches) > 0 {
		schema = batches[0].Schema()
	}
	r, err := array.NewRecordReader(schema, batches)
	require.NoError(t, err)
	return &source{RecordReader: r}
}

func (s *source) Retain() { s.retains++; s.RecordReader.Retain() }

func (s *source) Release() { s.releases++; s.RecordReader.Release() }

func (s *source) Schema() *arrow.Schema {
	if s.schema != nil {
		return s.schema()
	}
	return s.RecordReader.Schema()
}

func (s *source) Next() bool {
	if s.next != nil {
		s.next()
	}
	return s.RecordReader.Next()
}

func (s *source) Err() error { return s.err }

// exported is a stream of a reader, whose reference it takes.
func exported(r array.RecordReader) *cdata.CArrowArrayStream {
	out := new(cdata.CArrowArrayStream)
	cdata.ExportRecordReader(r, out)
	r.Release()
	return out
}

func streamMirror(s *cdata.CArrowArrayStream) *abi.ArrowArrayStream {
	return (*abi.ArrowArrayStream)(unsafe.Pointer(s))
}

func arrayMirror(a *cdata.CArrowArray) *abi.ArrowArray {
	return (*abi.ArrowArray)(unsafe.Pointer(a))
}

func schemaMirror(s *cdata.CArrowSchema) *abi.ArrowSchema {
	return (*abi.ArrowSchema)(unsafe.Pointer(s))
}
