//go:build cgo

package cdata_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowcdata "github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdata"
	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/errno"
)

var background = context.Background()

// async is a stream from a channel to a consumer of this package.
type async struct {
	to       chan cdata.RecordMessage
	consumer <-chan cdata.AsyncRecordBatchStream
	ended    chan error // of the producer
}

func newAsync(ctx context.Context, queueSize uint64, schema *arrow.Schema) async {
	handler := new(cdata.CArrowAsyncDeviceStreamHandler)
	a := async{make(chan cdata.RecordMessage), cdata.CreateAsyncDeviceStreamHandler(ctx, queueSize, handler), make(chan error, 1)}
	go func() { a.ended <- cdata.ExportAsyncRecordBatchStream(schema, a.to, handler) }()
	return a
}

// send sends numbers, and closes the channel.
func (a async) send(batches ...arrow.RecordBatch) {
	defer close(a.to)
	for _, b := range batches {
		b.Retain()
		a.to <- cdata.RecordMessage{Record: b, AdditionalMetadata: arrow.MetadataFrom(map[string]string{"rows": fmt.Sprint(b.NumRows())})}
	}
}

func TestAsyncStreams(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	var live atomic.Int64
	want := []arrow.RecordBatch{counted{numbers(t, 1), &live}, counted{numbers(t, 2, 3), &live}, counted{numbers(t), &live}}
	for _, queue := range []uint64{0, 1, 5, 1 << 40} {
		a := newAsync(background, queue, want[0].Schema())
		go a.send(want...)
		stream := <-a.consumer
		require.NoError(t, stream.Err)
		assert.True(t, stream.Schema.Equal(want[0].Schema()))
		for _, w := range want {
			m := <-stream.Stream
			require.NoError(t, m.Err)
			assert.True(t, array.RecordEqual(w, m.Record))
			assert.Same(t, stream.Schema, m.Record.Schema())
			assert.Equal(t, []string{fmt.Sprint(w.NumRows())}, m.AdditionalMetadata.Values())
			m.Record.Release()
			assert.NotPanics(t, m.Record.Release, "one too many does nothing")
		}
		_, more := <-stream.Stream
		assert.False(t, more)
		_, more = <-a.consumer
		assert.False(t, more, "the channel of the stream is closed")
		assert.NoError(t, <-a.ended)
		assert.Zero(t, live.Load(), "the producer takes the references")
	}
}

// A program may send as much before it reads as with arrow-go's package: the queue, as many more in the channel, and one
// on the way there.
func TestAsyncStreamsBufferTheirQueueTwice(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	const queue, most = 5, 2*5 + 1
	rec := numbers(t, 1)
	a := newAsync(background, queue, rec.Schema())
	stream := <-a.consumer
	for range most {
		rec.Retain()
		select {
		case a.to <- cdata.RecordMessage{Record: rec}:
		case <-time.After(time.Minute):
			t.Fatal("the producer takes no more")
		}
	}
	close(a.to)
	for range most {
		m := <-stream.Stream
		require.NoError(t, m.Err)
		m.Record.Release()
	}
	assert.NoError(t, <-a.ended)
}

func TestErrorsOfAsyncStreams(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	rec := numbers(t, 1)
	for _, row := range []struct {
		err  error
		code syscall.Errno
	}{
		{errSource, syscall.EINVAL}, // as arrow-go's
		{fmt.Errorf("write: %w", syscall.ENOSPC), syscall.ENOSPC},
		{context.Canceled, syscall.ECANCELED},
		{fmt.Errorf("slow: %w", context.DeadlineExceeded), syscall.ETIMEDOUT},
		{device.ErrNotSupported, syscall.ENOTSUP},
		{arrow.ErrNotImplemented, syscall.ENOSYS},
		{arrow.ErrInvalid, syscall.EINVAL},
	} {
		t.Run(row.err.Error(), func(t *testing.T) {
			a := newAsync(background, 1, rec.Schema())
			var live atomic.Int64
			live.Store(1)
			rec.Retain()
			go func() { a.to <- cdata.RecordMessage{Record: counted{rec, &live}, Err: row.err} }()
			stream := <-a.consumer
			require.NoError(t, stream.Err)
			m := <-stream.Stream
			assert.Nil(t, m.Record)
			assert.Equal(t, cdata.AsyncStreamError{Code: errno.Code(row.code), Msg: row.err.Error()}, m.Err)
			_, more := <-stream.Stream
			assert.False(t, more)
			assert.True(t, <-a.ended == row.err, "the very error")
			assert.Zero(t, live.Load(), "a batch beside an error is released")
		})
	}
	t.Run("without a text", func(t *testing.T) {
		a := newAsync(background, 1, rec.Schema())
		go func() { a.to <- cdata.RecordMessage{Err: errors.New("")} }()
		assert.EqualError(t, (<-(<-a.consumer).Stream).Err, "cdevice: import: ArrowAsyncDeviceStreamHandler.on_error: invalid argument (errno 22)")
		assert.EqualError(t, <-a.ended, "")
	})
	t.Run("no schema", func(t *testing.T) {
		a := newAsync(background, 1, nil)
		stream := <-a.consumer
		var reported cdata.AsyncStreamError
		require.ErrorAs(t, stream.Err, &reported)
		assert.Equal(t, errno.Code(syscall.EINVAL), reported.Code)
		assert.Contains(t, reported.Msg, "must have non-nil schema")
		assert.ErrorIs(t, <-a.ended, arrow.ErrInvalid)
	})
	t.Run("a message without a batch", func(t *testing.T) {
		a := newAsync(background, 1, rec.Schema())
		go func() { a.to <- cdata.RecordMessage{} }()
		m := <-(<-a.consumer).Stream
		assert.ErrorContains(t, m.Err, "RecordBatch = nil")
		assert.ErrorIs(t, <-a.ended, arrow.ErrInvalid)
	})
	t.Run("a batch of another type", func(t *testing.T) {
		other := numbers(t, 1)
		schema := arrow.NewSchema([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String}}, nil)
		a := newAsync(background, 1, schema)
		other.Retain()
		go func() { a.to <- cdata.RecordMessage{Record: other} }()
		m := <-(<-a.consumer).Stream
		assert.ErrorContains(t, m.Err, "RecordBatch.Column(0).type")
		assert.ErrorIs(t, <-a.ended, arrow.ErrInvalid)
	})
	t.Run("a released handler", func(t *testing.T) {
		err := cdata.ExportAsyncRecordBatchStream(rec.Schema(), nil, new(cdata.CArrowAsyncDeviceStreamHandler))
		assert.ErrorContains(t, err, "cdata: ExportAsyncRecordBatchStream: cdevice: export: ArrowAsyncDeviceStreamHandler.release = NULL")
		assert.Error(t, cdata.ExportAsyncRecordBatchStream(rec.Schema(), nil, nil))
		assert.Panics(t, func() { cdata.CreateAsyncDeviceStreamHandler(background, 1, nil) })
	})
}

// hostViews is how many imported record batches are alive, under CheckLeaks.
func hostViews() (n int) {
	for _, o := range cdevice.LiveObjects() {
		if o.Kind == "HostView" {
			n++
		}
	}
	return n
}

// The end of a consumer's context is told it as an error, ends the producer, and loses no batch, wherever it is.
func TestContextsEndAsyncStreams(t *testing.T) {
	rec := numbers(t, 1)
	for name, messages := range map[string]int{"while the producer waits": 0, "while the channel is full": 4} {
		t.Run(name, func(t *testing.T) {
			cdevicetest.CheckLeaks(t)
			ctx, cancel := context.WithCancel(background)
			a := newAsync(ctx, 1, rec.Schema())
			stream := <-a.consumer
			var live atomic.Int64
			live.Store(int64(messages))
			for range messages {
				rec.Retain()
				a.to <- cdata.RecordMessage{Record: counted{rec, &live}}
			}
			// One is in the channel, and one waits for room.
			require.Eventually(t, func() bool { return hostViews() == min(messages, 2) }, time.Minute, time.Millisecond)
			cancel()
			require.Eventually(t, func() bool { return hostViews() == 0 }, time.Minute, time.Millisecond)
			assert.NoError(t, <-a.ended, "a consumer that cancels is no error of the producer")
			assert.ErrorIs(t, (<-stream.Stream).Err, context.Canceled)
			_, more := <-stream.Stream
			assert.False(t, more)
			require.Eventually(t, func() bool { return live.Load() == 0 }, time.Minute, time.Millisecond, "the one that is read ahead, too")
		})
	}
	t.Run("of arrow-go", func(t *testing.T) { // whose producer writes through NULL
		if underASan {
			t.Skip("it leaks the handle of each task")
		}
		cdevicetest.CheckLeaks(t)
		ctx, cancel := context.WithCancel(background)
		handler := new(cdata.CArrowAsyncDeviceStreamHandler)
		opened := cdata.CreateAsyncDeviceStreamHandler(ctx, 5, handler)
		messages, ended := make(chan cdata.RecordMessage), make(chan error, 1)
		mem := memory.NewCheckedAllocator(mallocator.NewMallocator()) // arrow-go's pins nothing
		go func() { ended <- arrowcdata.ExportAsyncRecordBatchStream(rec.Schema(), messages, handler) }()
		stream := <-opened
		require.NoError(t, stream.Err)
		for range 11 { // five in the channel, one on the way there, five that are ready and will be dropped
			messages <- cdata.RecordMessage{Record: numbersIn(mem, []int64{1})}
		}
		cancel()
		assert.NoError(t, <-ended)
		var last cdata.RecordMessage
		for last = range stream.Stream {
			if last.Record != nil { // one that was taken before the channel was drained
				last.Record.Release()
			}
		}
		assert.ErrorIs(t, last.Err, context.Canceled)
		require.Eventually(t, func() bool { return mem.CurrentAlloc() == 0 }, time.Minute, time.Millisecond, "dropped tasks are released")
	})
	t.Run("before the schema", func(t *testing.T) {
		cdevicetest.CheckLeaks(t)
		ctx, cancel := context.WithCancel(background)
		handler := new(cdata.CArrowAsyncDeviceStreamHandler)
		opened := cdata.CreateAsyncDeviceStreamHandler(ctx, 1, handler)
		cancel()
		assert.ErrorIs(t, (<-opened).Err, context.Canceled)
		stream := make(chan cdata.RecordMessage)
		if err := cdata.ExportAsyncRecordBatchStream(rec.Schema(), stream, handler); err != nil { // nil if it was cancelled after on_schema
			assert.ErrorIs(t, err, syscall.ECANCELED)
		}
	})
}
