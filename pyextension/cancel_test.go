//go:build cgo && unix

package pyextension

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/handle"
)

func TestCancel(t *testing.T) {
	nothingIsLeft(t)
	ended := make(chan error, 1)
	register(t, "waits", func(ctx context.Context, b *cdevice.RecordBatch) *cdevice.RecordBatch {
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return b
	})
	number, _ := callInMain(request(t, "waits", exported(t, 1)), time.Millisecond)
	require.NotZero(t, number)
	still, _ := waitFor(number, time.Millisecond)
	assert.Equal(t, number, still)
	server{}.Cancel(number)
	assert.ErrorIs(t, <-ended, context.Canceled)
	gone, data := waitFor(number, -1)
	assert.Zero(t, gone)
	assert.Contains(t, decodeReply(t, data).text, fmt.Sprint(number))
}

// A cancelled read loses no batch.
func TestCancelledNext(t *testing.T) {
	nothingIsLeft(t)
	let := make(chan struct{})
	registerStream(t, "slow", func(ctx context.Context, n int) (int64, error) {
		<-let
		assert.NoError(t, ctx.Err(), "the context lives as long as the reader")
		return int64(n), nil
	})
	stream := ask(t, "slow", exported(t, 1, 2, 3)).value.(replied)
	number, _ := callInMain(request(t, ".next", own1(stream.handle)), time.Millisecond)
	require.NotZero(t, number)
	server{}.Cancel(number)
	close(let)
	readNext(t, stream, 1)
	readNext(t, stream, 2)
	server{}.Release(stream.handle)
}

// A call that was cancelled before it began reads nothing: the stream may be closed by then, and its context has ended.
func TestCancelledBeforeItBegins(t *testing.T) {
	nothingIsLeft(t)
	registerStream(t, "stream", func(context.Context, int) (int64, error) {
		t.Error("a batch was read")
		return 0, io.EOF
	})
	stream := ask(t, "stream", exported(t, 1)).value.(replied)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		_, err := handle.Get(handle.Word(stream.handle)).(*object).reader.Next(ctx)
		assert.ErrorIs(t, err, context.Canceled)
	}
	server{}.Release(stream.handle)
}

// A read_all that is cancelled, or ends with an error, loses no batch: the next read returns those it has read.
func TestInterruptedReadAll(t *testing.T) {
	nothingIsLeft(t)
	let, third := make(chan error), make(chan struct{})
	rows := int64(0)
	registerStream(t, "slow", func(_ context.Context, n int) (int64, error) {
		if n == 3 {
			close(third)
		}
		if n > 2 {
			if err := <-let; err != nil {
				return 0, err
			}
		}
		rows++
		return rows, nil
	})
	stream := ask(t, "slow", exported(t, 1, 2, 3, 4)).value.(replied)
	number, _ := callInMain(request(t, ".read_all", own1(stream.handle)), 0)
	require.NotZero(t, number)
	<-third
	server{}.Cancel(number)
	readNext(t, stream, 1)
	readNext(t, stream, 2)
	let <- nil
	readNext(t, stream, 3)
	go func() {
		let <- nil
		let <- errors.New("lost the file")
	}()
	assert.Contains(t, ask(t, ".read_all", own1(stream.handle)).text, "lost the file")
	readNext(t, stream, 4)
	assert.Contains(t, ask(t, ".next", own1(stream.handle)).text, "lost the file")
	server{}.Release(stream.handle)
}
