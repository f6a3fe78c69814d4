package cdevice_test

import (
	"context"
	"errors"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// A function that waits ends with the context, with the last Release and with Close, whatever the
// goroutine that calls it.
func TestFunctionsThatWaitAreInterrupted(t *testing.T) {
	for name, row := range map[string]struct {
		prefetch int
		end      func(r *cdevice.RecordReader, cancel func())
		want     error
	}{
		"context":           {0, func(_ *cdevice.RecordReader, cancel func()) { cancel() }, context.Canceled},
		"context, prefetch": {2, func(_ *cdevice.RecordReader, cancel func()) { cancel() }, context.Canceled},
		"release":           {0, func(r *cdevice.RecordReader, _ func()) { r.Release() }, nil},
		"release, prefetch": {2, func(r *cdevice.RecordReader, _ func()) { r.Release() }, nil},
		"close":             {0, func(r *cdevice.RecordReader, _ func()) { _ = r.Close(background) }, cdevice.ErrReleased},
		"close, prefetch":   {2, func(r *cdevice.RecordReader, _ func()) { _ = r.Close(background) }, cdevice.ErrReleased},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			waiting, stopped := make(chan struct{}), make(chan struct{})
			r, err := cdevice.NewRecordReaderFunc(ctx, numberedSchema, device.CPU, func(ctx context.Context) (*cdevice.RecordBatch, error) {
				close(waiting)
				<-ctx.Done()
				return nil, ctx.Err()
			}, func() { close(stopped) })
			require.NoError(t, err)
			r.Prefetch(row.prefetch)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				assert.False(t, r.Next())
			}()
			<-waiting
			within.Seconds(t, "the end", func() error { row.end(r, cancel); <-ended; return nil })
			if row.want != nil {
				assert.ErrorIs(t, r.Err(), row.want)
				r.Release()
			}
			within.Seconds(t, "stop", func() error { <-stopped; return nil })
		})
	}
}

// The context of a function that was never called ends too, and its error is its own.
func TestFunctionsOfAContextThatHasEnded(t *testing.T) {
	checkLeaks(t)
	own := errors.New("own")
	r, err := cdevice.NewRecordReaderFunc(canceled, numberedSchema, device.CPU, func(ctx context.Context) (*cdevice.RecordBatch, error) {
		assert.Error(t, ctx.Err())
		return nil, own
	}, nil)
	require.NoError(t, err)
	defer r.Release()
	assert.False(t, r.Next())
	assert.ErrorIs(t, r.Err(), own)
}

func TestHostReaderContext(t *testing.T) {
	checkLeaks(t)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	asked := 0
	r, err := readerFunc(arrow.NewSchema(nil, nil), device.CPU, func() (*cdevice.RecordBatch, error) {
		asked++
		return ownedBatch(t, nil), nil
	}, nil)
	require.NoError(t, err)
	defer r.Release()
	h := r.HostReader(ctx, nil)
	defer h.Release()
	require.True(t, h.Next())
	cancel()
	assert.False(t, h.Next())
	assert.EqualError(t, h.Err(), "cdevice: read: context canceled")
	assert.Equal(t, 1, asked)
}

func TestContextEndsCopies(t *testing.T) {
	checkLeaks(t)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	from := newScript(t, numbered(t, 10)...)
	src, err := cdevice.ImportRecordReader(from.stream)
	require.NoError(t, err)
	r := made(t, src)(src.CopyTo(ctx, device.CPUDevice())).Prefetch(1)
	require.True(t, r.Next())
	// The fourth batch is read while the third one is copied: the copy of the second one is ready.
	within.Eventually(t, "a copy ahead", func() bool { return from.nexts.Load() >= 4 })
	cancel()
	assert.False(t, r.Next(), "the copy that is ready is not given")
	assert.EqualError(t, r.Err(), "cdevice: copy: context canceled")
	release(t, r)
}
