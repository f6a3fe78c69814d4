//go:build cgo && linux

package callocfail_test

import (
	"context"
	"fmt"
	"runtime"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdata"
	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// consumer calls the callbacks of a stream as a program in C does, on a thread of its own.
type consumer struct {
	r                         *trial
	stream                    any // *S
	at                        uintptr
	getSchema, getNext, error uintptr
}

func consumerOf[S cdevice.StreamStruct](r *trial, s *S) consumer {
	c := consumer{r: r, stream: s}
	switch s := any(s).(type) {
	case *cdevice.CArrowDeviceArrayStream:
		m := abi.As[abi.ArrowDeviceArrayStream](s)
		c.at, c.getSchema, c.getNext, c.error = addressOf(m), m.GetSchema, m.GetNext, m.GetLastError
	case *cdata.CArrowArrayStream:
		m := abi.As[abi.ArrowArrayStream](s)
		c.at, c.getSchema, c.getNext, c.error = addressOf(m), m.GetSchema, m.GetNext, m.GetLastError
	}
	return c
}

// call calls get_schema or get_next, and returns what the code and the text of get_last_error say.
func (c consumer) call(callback, out uintptr) error {
	code := cpeer.CallOnThread(callback, c.at, out)
	defer runtime.KeepAlive(c.stream)
	if code == 0 {
		return nil
	}
	text := abi.String(cpeer.CallForPointer(c.error, c.at))
	assert.Contains(c.r, text, "cannot allocate memory")
	return fmt.Errorf("%s: %w", text, syscall.Errno(code))
}

// source makes a reader of three batches, which end is to release.
type source func(r *trial, rec arrow.RecordBatch) (reader *cdevice.RecordReader, end func())

// sources are readers whose batches go to C on different ways.
var sources = map[string]source{
	"arrow-go's": func(r *trial, rec arrow.RecordBatch) (*cdevice.RecordReader, func()) {
		rdr, err := array.NewRecordReader(rec.Schema(), []arrow.RecordBatch{rec, rec, rec})
		require.NoError(r, err)
		defer rdr.Release()
		of, err := cdevice.WrapRecordReader(rdr, device.CPUDevice())
		require.NoError(r, err)
		return of, of.Release
	},
	"an iterator's": func(r *trial, rec arrow.RecordBatch) (*cdevice.RecordReader, func()) {
		batches := []*cdevice.RecordBatch{imported(r.T, rec), imported(r.T, rec), imported(r.T, rec)}
		of, err := cdevice.NewRecordReader(rec.Schema(), device.CPU, func(yield func(*cdevice.RecordBatch, error) bool) {
			for _, b := range batches {
				if !yield(b, nil) {
					return
				}
			}
		})
		require.NoError(r, err)
		return of, func() {
			of.Release()
			for _, b := range batches {
				b.Release()
			}
		}
	},
}

func TestEachAllocationOfAStream(t *testing.T) {
	needsOverlay(t)
	for name, rec := range tables(t) {
		for kind, make := range sources {
			for _, part := range []string{"export", "schema", "batch"} {
				least := 1
				if part == "export" {
					least = 0
				}
				eachKind(t, name+"/"+kind+"/"+part, least, ofStream[cdevice.CArrowDeviceArrayStream, cdevice.CArrowDeviceArray](rec, make, part), ofStream[cdata.CArrowArrayStream, cdata.CArrowArray](rec, make, part))
			}
		}
	}
}

// ofStream is an operation in which one part of the way of a stream meets failing allocations: its export, get_schema, or
// get_next for the second batch.
func ofStream[S cdevice.StreamStruct, A cdevice.ArrayStruct](rec arrow.RecordBatch, of source, part string) func(*trial) error {
	return func(r *trial) error {
		during := func(this string, do func() error) error {
			if this == part {
				return r.during(do)
			}
			return do()
		}
		reader, end := of(r, rec)
		defer end()
		s := garbage[S]()
		if err := during("export", func() error { return cdevice.ExportRecordReader(reader, s) }); err != nil {
			untouched(r, s)
			return err
		}
		defer cdevice.ReleaseStruct(s)
		c := consumerOf(r, s)
		schema := garbage[cdata.CArrowSchema]()
		if err := during("schema", func() error { return c.call(c.getSchema, addressOf(schema)) }); err != nil {
			assert.Zero(r, abi.As[abi.ArrowSchema](schema).Release)
			schema = garbage[cdata.CArrowSchema]()
			require.NoError(r, c.call(c.getSchema, addressOf(schema)), "it was no end")
			r.keep(func() { cdevice.ReleaseStruct(schema) })
			return err
		}
		got, err := cdevice.ImportSchema(schema)
		require.NoError(r, err)
		assert.True(r, got.Equal(rec.Schema()))
		for i := range 3 {
			out := garbage[A]()
			next := func() error { return c.call(c.getNext, addressOf(out)) }
			if i == 1 {
				err = during("batch", next)
			} else {
				err = next()
			}
			if err != nil {
				assert.Zero(r, members(out).Release)
				assert.EqualError(r, c.call(c.getNext, addressOf(garbage[A]())), err.Error(), "the stream has ended with the batch")
				return err
			}
			b, err := cdevice.ImportRecordBatchWithSchema(out, got)
			require.NoError(r, err)
			r.keep(b.Release)
			same(r, rec, b)
		}
		last := garbage[A]()
		require.NoError(r, c.call(c.getNext, addressOf(last)))
		assert.Zero(r, members(last).Release)
		return nil
	}
}

// members are the fields of a struct of either kind.
func members[A cdevice.ArrayStruct](a *A) *abi.ArrowArray { return abi.As[abi.ArrowArray](a) }

// Streams of arrays.
func TestEachAllocationOfAStreamOfArrays(t *testing.T) {
	needsOverlay(t)
	rec := table(t, "int64", "utf8", "list")
	for i := range int(rec.NumCols()) {
		eachKind(t, rec.ColumnName(i), 1, ofArrays[cdevice.CArrowDeviceArrayStream, cdevice.CArrowDeviceArray](rec.Column(i)),
			ofArrays[cdata.CArrowArrayStream, cdata.CArrowArray](rec.Column(i)))
	}
}

// ofArrays is an operation in which all parts of the way of a stream meet failing allocations.
func ofArrays[S cdevice.StreamStruct, A cdevice.ArrayStruct](column arrow.Array) func(*trial) error {
	return func(r *trial) error {
		chunked := arrow.NewChunked(column.DataType(), []arrow.Array{column, column})
		defer chunked.Release()
		reader, err := cdevice.WrapChunked(chunked, device.CPUDevice())
		require.NoError(r, err)
		defer reader.Release()
		s, schema := garbage[S](), garbage[cdata.CArrowSchema]()
		var outs []*A
		err = r.during(func() error {
			if err := cdevice.ExportArrayReader(reader, s); err != nil {
				untouched(r, s)
				return err
			}
			c := consumerOf(r, s)
			if err := c.call(c.getSchema, addressOf(schema)); err != nil {
				return err
			}
			for range 2 {
				out := garbage[A]()
				if err := c.call(c.getNext, addressOf(out)); err != nil {
					return err
				}
				outs = append(outs, out)
			}
			return nil
		})
		cdevice.ReleaseStruct(s)
		if err != nil {
			for _, out := range outs {
				cdevice.ReleaseStruct(out)
			}
			if abi.As[abi.ArrowSchema](schema).Release != garbageWord {
				cdevice.ReleaseStruct(schema)
			}
			return err
		}
		field, err := cdevice.ImportField(schema)
		require.NoError(r, err)
		for _, out := range outs {
			a, err := cdevice.ImportArrayWithType(out, field.Type)
			require.NoError(r, err)
			r.keep(a.Release)
			view, err := a.HostView(context.Background())
			require.NoError(r, err)
			assert.True(r, array.Equal(column, view))
			view.Release()
		}
		return nil
	}
}
