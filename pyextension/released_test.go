//go:build cgo && unix

package pyextension

import (
	"cmp"
	"context"
	"errors"
	"io"
	"testing"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/pyextension/internal/capi"
)

// stream is the result of a function: a reader of batches of one row, then of an error if it is not nil.
func stream(t *testing.T, batches int, end error) replied {
	t.Helper()
	registerStream(t, "stream", func(_ context.Context, n int) (int64, error) {
		if n <= batches {
			return 1, nil
		}
		return 0, cmp.Or(end, io.EOF)
	})
	return ask(t, "stream", exported(t, 7)).value.(replied)
}

// Objects that a call has made and does not return are released, and so are its arguments.
func TestEveryCallReleasesItsOwn(t *testing.T) {
	broken := errors.New("disk on fire")
	for name, c := range map[string]struct {
		f       any
		batches int
		end     error
		want    string // in the error
	}{
		"a table":                  {func(t arrow.Table) arrow.Table { return t }, 3, nil, ""},
		"a table that fails":       {func(arrow.Table) {}, 2, broken, "disk on fire"},
		"a host reader":            {func(r array.RecordReader) array.RecordReader { return r }, 3, nil, ""},
		"a host reader, unread":    {func(array.RecordReader) {}, 3, nil, ""},
		"a reader, unread":         {func(*cdevice.RecordReader) {}, 3, nil, ""},
		"a host batch":             {func(b arrow.RecordBatch) arrow.RecordBatch { return b }, 3, nil, ""},
		"a batch of one":           {func(b *cdevice.RecordBatch) *cdevice.RecordBatch { return b }, 1, nil, ""},
		"a batch of many":          {func(b *cdevice.RecordBatch) *cdevice.RecordBatch { return b }, 3, nil, ""},
		"a batch of none":          {func(b *cdevice.RecordBatch) *cdevice.RecordBatch { return b }, 0, nil, ""},
		"a batch that fails":       {func(*cdevice.RecordBatch) {}, 2, broken, "disk on fire"},
		"a column":                 {func(b arrow.RecordBatch) arrow.Array { return retained(b.Column(0)) }, 3, nil, ""},
		"results beside a bad one": {func(b *cdevice.RecordBatch) []any { return []any{b, b, make(chan int)} }, 1, nil, "chan int is not supported"},
		"results beside a panic":   {func(b *cdevice.RecordBatch) []any { return []any{b, struct{ array.RecordReader }{}} }, 1, nil, "nil pointer dereference"},
		"results beside an error": {func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, arrow.Array, []any, array.RecordReader, error) {
			part, err := b.Slice(0, 1)
			require.NoError(t, err)
			view, err := b.HostView(t.Context())
			require.NoError(t, err)
			defer view.Release()
			return part, retained(view.Column(0)), []any{b, b.Column(0)}, (*nilReader)(nil), broken
		}, 1, nil, "disk on fire"},
		"a result that is released": {func(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) {
			part, err := b.Slice(0, 1)
			defer part.Release()
			return part, err
		}, 1, nil, "the function gives its result to the caller, and must not release it"},
		"a result of a broken call": {func(b *cdevice.RecordBatch) *cdevice.Array { defer b.Release(); return b.Column(0) }, 1, nil, "released that is borrowed"},
	} {
		t.Run(name, func(t *testing.T) {
			nothingIsLeft(t)
			s := stream(t, c.batches, c.end)
			register(t, "f", c.f)
			got := ask(t, "f", own1(s.handle))
			server{}.Release(s.handle)
			if o, is := got.value.(replied); is {
				server{}.Release(o.handle)
			}
			assert.Contains(t, got.text, c.want)
			assert.Equal(t, c.want == "", got.text == "", got.text)
		})
	}
}

// nilReader is the type of a nil pointer in an interface.
type nilReader struct{ array.RecordReader }

func retained[T interface{ Retain() }](v T) T {
	v.Retain()
	return v
}

// A batch as a stream is released if it is not read.
func TestUnreadStreamOfABatch(t *testing.T) {
	nothingIsLeft(t)
	register(t, "f", func(*cdevice.RecordReader) {})
	assert.Empty(t, ask(t, "f", exported(t, 1)).text)
}

// The result of a call that is cancelled once it has ended is released.
func TestCancelAfterTheEnd(t *testing.T) {
	nothingIsLeft(t)
	open := make(chan struct{})
	register(t, "f", func(_ context.Context, b *cdevice.RecordBatch) *cdevice.RecordBatch {
		<-open
		return b
	})
	number, _ := callInMain(request(t, "f", exported(t, 1)), 0)
	require.NotZero(t, number)
	close(open)
	require.True(t, lookup(number, false).wait(time.Minute))
	server{}.Cancel(number)
}

// An asynchronous stream becomes a reader. It ends if its function fails, or if it ends.
func TestAsynchronousResults(t *testing.T) {
	broken := errors.New("disk on fire")
	for name, c := range map[string]struct {
		err    error
		export bool
		want   string // in the error
	}{
		"a stream":                        {nil, true, ""},
		"a stream beside an error":        {broken, true, "disk on fire"},
		"a silent stream beside an error": {broken, false, "disk on fire"},
	} {
		t.Run(name, func(t *testing.T) {
			memory, err := capi.Allocate(unsafe.Sizeof(abi.ArrowAsyncDeviceStreamHandler{}))
			require.NoError(t, err)
			t.Cleanup(func() { capi.Free(memory) }) // after the check that the producer has released it
			nothingIsLeft(t)
			handler := cdevice.AsyncDeviceStreamHandlerFromPtr(memory)
			register(t, "f", func(r *cdevice.RecordReader) (*cdevice.AsyncStream, error) {
				s, err := cdevice.ImportAsync(context.Background(), handler, 1)
				require.NoError(t, err)
				if c.export {
					_, err = cdevice.ExportAsync(context.Background(), r, handler)
					require.NoError(t, err)
				}
				return s, c.err
			})
			got := ask(t, "f", exported(t, 7))
			if o, is := got.value.(replied); is {
				readNext(t, o, 1)
				server{}.Release(o.handle)
			}
			assert.Equal(t, c.want, got.text)
			if !c.export {
				bridge.CallHandlerRelease(abi.At[abi.ArrowAsyncDeviceStreamHandler](memory)) // the producer has seen the cancel
			}
		})
	}
}
