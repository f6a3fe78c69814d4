package cdevice_test

import (
	"context"
	"iter"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// settles fails the test if it ends with more alive than it began with. A stream that
// ended ends its goroutines a moment later, so that it asks until they have.
func settles(t *testing.T) {
	t.Helper()
	before, goroutines := cdevice.ReadStats(), runtime.NumGoroutine()
	t.Cleanup(func() {
		for deadline := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
			if left(before) == (cdevice.Stats{}) && runtime.NumGoroutine() <= goroutines {
				return
			}
			if time.Now().After(deadline) {
				break
			}
		}
		assert.Zero(t, left(before), "something is not released")
		assert.LessOrEqual(t, runtime.NumGoroutine(), goroutines, "a goroutine is left")
	})
}

// left is what is alive beyond before. A goroutine that was ending then is not missed.
func left(before cdevice.Stats) cdevice.Stats {
	now := cdevice.ReadStats()
	more := reflect.ValueOf(&now).Elem()
	was := reflect.ValueOf(before)
	for i := range more.NumField() {
		more.Field(i).SetInt(more.Field(i).Int() - was.Field(i).Int())
	}
	now.Goroutines = max(now.Goroutines, 0)
	return now
}

// asyncStream is a stream of ours and its reader, which is there once it was waited for.
type asyncStream struct {
	*cdevice.AsyncStream
	t        *testing.T
	released sync.Once

	mu sync.Mutex
	r  *cdevice.RecordReader
}

// importAsync fills the handler. The stream is closed by the caller.
func importAsync(t *testing.T, ctx context.Context, h *cdevice.CArrowAsyncDeviceStreamHandler, opts ...cdevice.ImportOption) *asyncStream {
	t.Helper()
	s, err := cdevice.ImportAsync(ctx, h, opts...)
	require.NoError(t, err)
	return &asyncStream{AsyncStream: s, t: t}
}

// reader waits for the reader, which stays the stream's.
func (s *asyncStream) reader(ctx context.Context) (*cdevice.RecordReader, error) {
	r, err := s.Reader(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.r == nil {
		s.r = r
	} else {
		r.Release()
	}
	return s.r, nil
}

// All yields what the reader does, or why there is none.
func (s *asyncStream) All() iter.Seq2[*cdevice.RecordBatch, error] {
	r, err := s.reader(context.Background())
	if err != nil {
		return func(yield func(*cdevice.RecordBatch, error) bool) { yield(nil, err) }
	}
	return r.All()
}

// schema waits for the schema.
func (s *asyncStream) schema(ctx context.Context) (*arrow.Schema, error) {
	r, err := s.reader(ctx)
	if err != nil {
		return nil, err
	}
	return r.Schema(), nil
}

// close ends the stream, waits for its producer, and releases the reader.
func (s *asyncStream) close() {
	assert.NoError(s.t, s.Close(context.Background()))
	s.mu.Lock()
	r := s.r
	s.mu.Unlock()
	if r != nil {
		s.released.Do(r.Release)
	}
}

// soon is a context for what must not take long.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// repeated is a reader of the same batch, n times; it is released at the end.
func repeated(t *testing.T, rec arrow.RecordBatch, n int) *cdevice.RecordReader {
	t.Helper()
	recs := make([]arrow.RecordBatch, n)
	for i := range recs {
		recs[i] = rec
	}
	rdr, err := array.NewRecordReader(rec.Schema(), recs)
	require.NoError(t, err)
	defer rdr.Release()
	r, err := cdevice.WrapRecordReader(rdr, device.CPUDevice())
	require.NoError(t, err)
	t.Cleanup(r.Release)
	return r
}
