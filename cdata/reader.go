//go:build cgo

package cdata

import (
	"context"
	"io"
	"runtime"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/arrio"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/importopt"
)

// ImportCRecordReader makes a reader of a C stream, which it moves, or releases if it returns an error. It
// calls get_schema, but not get_next. schema is ignored: the stream's own applies.
//
// The result is an [array.RecordReader] as well: a type assertion gives its other methods. It is to be used by
// one goroutine at a time. Read returns io.EOF at the end. A record batch is borrowed from the reader until the
// next Read or Next; Retain keeps it. The last Release releases the stream, even before its end. A reader that
// is dropped without a Release is collected, and then releases the stream, but not the record batch of a stream
// that was not read to its end.
//
// An error that the producer reported wraps its code as a syscall.Errno, if it is positive.
func ImportCRecordReader(stream *CArrowArrayStream, schema *arrow.Schema) (arrio.Reader, error) {
	from, err := cdevice.ImportRecordReader(stream, likeArrowGo)
	if err != nil {
		return nil, err
	}
	defer from.Release()
	host := from.HostReader(context.Background(), nil).(hostReader)
	host.Lenient(batchTooMany)
	r := &reader{from: host}
	r.refs.Store(1)
	// The release callback may block: it is not called on the goroutine of the cleanups.
	r.dropped = runtime.AddCleanup(r, func(host hostReader) { go host.Abandon() }, host)
	return r, nil
}

// likeArrowGo is the option of all imports of streams.
var likeArrowGo cdevice.ImportOption = func(o *importopt.Options) { o.LikeArrowGo = true }

// ImportCArrayStream is [ImportCRecordReader], and panics if that returns an error.
//
// Deprecated: use [ImportCRecordReader].
func ImportCArrayStream(stream *CArrowArrayStream, schema *arrow.Schema) arrio.Reader {
	r, err := ImportCRecordReader(stream, schema)
	must("ImportCArrayStream", err)
	return r
}

// hostReader is a reader of cdevice's, which this package makes behave as arrow-go's.
type hostReader interface {
	array.RecordReader
	Lenient(tooMany func())
	Abandon()
}

// reader is a stream of another library. Its methods keep it from being collected until they return, as the
// stream would be released under them.
type reader struct {
	refs    atomic.Int64
	from    hostReader
	dropped runtime.Cleanup
}

var _ array.RecordReader = (*reader)(nil)

func (r *reader) Retain() { r.refs.Add(1) }

func (r *reader) Release() {
	switch refs := r.refs.Add(-1); {
	case refs < 0:
		readerTooMany()
	case refs == 0:
		r.dropped.Stop()
		r.from.Release()
	}
}

func (r *reader) Schema() *arrow.Schema { return r.from.Schema() }

func (r *reader) Next() bool {
	defer runtime.KeepAlive(r)
	return r.from.Next()
}

func (r *reader) RecordBatch() arrow.RecordBatch { return r.from.RecordBatch() }

// Record is deprecated, but part of the interface.
func (r *reader) Record() arrow.RecordBatch { return r.from.RecordBatch() }

func (r *reader) Err() error { return r.from.Err() }

func (r *reader) Read() (arrow.RecordBatch, error) {
	if r.Next() {
		return r.RecordBatch(), nil
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return nil, io.EOF
}
