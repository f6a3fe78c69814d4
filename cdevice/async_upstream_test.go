package cdevice_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/errno"
)

// arrow-go's cdata (v18.8) as the other side of an asynchronous stream. Its own defects set
// the limits of what is tested, and are named where they do:
//
//   - its consumer calls request after the producer is gone, unless its queue is 1;
//   - its producer does not survive its end while more than five requests wait: our queue is at most 5;
//   - its producer is gone before it calls release, and does not survive a concurrent cancel, nor a
//     cancel beside a request: it is not cancelled here;
//   - its extract_data(NULL) ends the process: all its tasks are extracted here;
//   - its producer waits for a request before it announces the end; ours always has one under way;
//   - a task of its that is extracted keeps its handle for ever;
//   - its consumer leaves queued tasks alone once its context is done, and hangs if it is
//     released before on_schema;
//   - its consumer frees its own state when it refuses a schema, and release then ends the
//     process: it is offered no device but the CPU here;
//   - its consumer reads the metadata of errors as a C string.

func cdataHandler(h *cdevice.CArrowAsyncDeviceStreamHandler) *cdata.CArrowAsyncDeviceStreamHandler {
	return (*cdata.CArrowAsyncDeviceStreamHandler)(unsafe.Pointer(h))
}

// leaksUnderASan ends a test of theirs that leaves eight bytes of C memory a task.
func leaksUnderASan(t *testing.T) {
	if underASan {
		t.Skip("cdata's tasks keep their handles for ever")
	}
}

// theirProducer starts cdata's producer, which sends rec n times and then err, if it is not nil.
func theirProducer(t *testing.T, rec arrow.RecordBatch, n int, md arrow.Metadata, err error, h *cdevice.CArrowAsyncDeviceStreamHandler) {
	t.Helper()
	messages, done := make(chan cdata.RecordMessage), make(chan error, 1)
	go func() {
		defer close(messages)
		for range n {
			rec.Retain()
			messages <- cdata.RecordMessage{Record: rec, AdditionalMetadata: md}
		}
		if err != nil {
			messages <- cdata.RecordMessage{Err: err}
		}
	}()
	go func() { done <- cdata.ExportAsyncRecordBatchStream(rec.Schema(), messages, cdataHandler(h)) }()
	t.Cleanup(func() { assert.Equal(t, err, <-done) })
}

func TestAsyncFromCdata(t *testing.T) {
	leaksUnderASan(t)
	settles(t)
	rec := outsideTheHeap(t)
	md := arrow.NewMetadata([]string{"k"}, []string{"v"})
	for i, n := range []int{0, 1, 2, 25, 0, 1, 2, 25} {
		h := new(cdevice.CArrowAsyncDeviceStreamHandler)
		s := importAsync(t, soon(t), h, []int{1, 5}[i/4])
		theirProducer(t, rec, n, md, nil, h)
		schema, err := s.schema(soon(t))
		require.NoError(t, err)
		assert.True(t, rec.Schema().Equal(schema))
		got := 0
		for b, err := range s.All() {
			require.NoError(t, err)
			assert.True(t, sameRecord(t, rec, b))
			assert.True(t, md.Equal(b.Metadata()))
			got++
		}
		assert.Equal(t, n, got)
		s.close()
	}
}

func TestAsyncErrorFromCdata(t *testing.T) {
	leaksUnderASan(t)
	settles(t)
	rec := outsideTheHeap(t)
	h := new(cdevice.CArrowAsyncDeviceStreamHandler)
	s := importAsync(t, soon(t), h, 1)
	theirProducer(t, rec, 2, arrow.Metadata{}, errors.New("no more"), h)
	got := 0
	var last error
	for _, err := range s.All() {
		if last = err; err == nil {
			got++
		}
	}
	assert.Equal(t, 2, got)
	var async *cdevice.ProducerError
	require.ErrorAs(t, last, &async)
	assert.Equal(t, "no more", async.Message)
	assert.Equal(t, errno.Code(syscall.EINVAL), async.Code, "whatever the error was")
	s.close()
}

func TestAsyncErrorFromCdataBeforeTheSchema(t *testing.T) {
	settles(t)
	h := new(cdevice.CArrowAsyncDeviceStreamHandler)
	s := importAsync(t, soon(t), h, 1)
	assert.Error(t, cdata.ExportAsyncRecordBatchStream(nil, nil, cdataHandler(h)))
	_, err := s.schema(soon(t))
	var async *cdevice.ProducerError
	require.ErrorAs(t, err, &async)
	assert.Contains(t, async.Message, "must have non-nil schema")
	s.close()
}

// theirStream is the stream that cdata's consumer reads from our producer.
func theirStream(t *testing.T, ctx context.Context, r *cdevice.RecordReader) cdata.AsyncRecordBatchStream {
	t.Helper()
	h := new(cdevice.CArrowAsyncDeviceStreamHandler)
	streams := cdata.CreateAsyncDeviceStreamHandler(ctx, 1, cdataHandler(h))
	_, err := cdevice.ExportAsync(background, r, h)
	require.NoError(t, err)
	return <-streams
}

func TestAsyncToCdata(t *testing.T) {
	settles(t)
	rec := outsideTheHeap(t)
	ofStream, ofBatch := arrow.NewMetadata([]string{"rows"}, []string{"many"}), arrow.NewMetadata([]string{"k"}, []string{"v"})
	with := wrap(t, rec).WithMetadata(ofBatch)
	defer with.Release()
	for _, n := range []int{0, 1, 2, 25} {
		r := yields(t, rec.Schema(), yielding(nil, times(n, with)...))
		s := theirStream(t, background, r.WithMetadata(ofStream))
		require.NoError(t, s.Err)
		assert.True(t, rec.Schema().Equal(s.Schema))
		assert.True(t, ofStream.Equal(s.AdditionalMetadata))
		got := 0
		for m := range s.Stream {
			require.NoError(t, m.Err)
			assert.True(t, array.RecordEqual(rec, m.Record))
			assert.True(t, ofBatch.Equal(m.AdditionalMetadata))
			m.Record.Release()
			got++
		}
		assert.Equal(t, n, got)
	}
}

func TestAsyncErrorToCdata(t *testing.T) {
	settles(t)
	rec := outsideTheHeap(t)
	s := theirStream(t, background, yields(t, rec.Schema(), yielding(errors.New("out of paper"), wrap(t, rec))))
	require.NoError(t, s.Err)
	var last error
	got := 0
	for m := range s.Stream {
		if last = m.Err; m.Err == nil {
			m.Record.Release()
			got++
		}
	}
	assert.Equal(t, 1, got)
	var theirs cdata.AsyncStreamError
	require.ErrorAs(t, last, &theirs)
	assert.Equal(t, errno.Code(syscall.EIO), theirs.Code)
	assert.Equal(t, "out of paper", theirs.Msg)
}

func TestAsyncErrorBeforeTheSchemaToCdata(t *testing.T) {
	settles(t)
	r, err := cdevice.NewFailedRecordReader(device.CPU, errSource)
	require.NoError(t, err)
	defer r.Release()
	assert.ErrorContains(t, theirStream(t, background, r).Err, errSource.Error())
}
