package cdevice_test

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Asynchronous streams with producers, consumers and programs that do what they rarely do.

// goProducer is a producer whose callbacks a test writes in Go.
type goProducer struct {
	handler *cdevice.CArrowAsyncDeviceStreamHandler
	c       *abi.ArrowAsyncProducer
	request func(int64)
	cancel  func()
}

func newGoProducer(t *testing.T, h *cdevice.CArrowAsyncDeviceStreamHandler) *goProducer {
	t.Helper()
	p := &goProducer{handler: h, request: func(int64) {}, cancel: func() {}}
	p.c = bridge.NewProducer(p, int32(device.CPU), nil)
	t.Cleanup(func() { bridge.EndProducer(p.c) })
	return p
}

func (p *goProducer) Request(n int64) { p.request(n) }
func (p *goProducer) Cancel()         { p.cancel() }
func (p *goProducer) Release()        {}

func (p *goProducer) begin(t *testing.T) int {
	t.Helper()
	out := new(abi.ArrowSchema)
	require.NoError(t, cdevice.ExportSchema(numberedSchema, cdevice.SchemaFromPtr(addressOf(out))))
	p.handler.Producer = addressOf(p.c)
	return bridge.CallOnSchema(abi.As[abi.ArrowAsyncDeviceStreamHandler](p.handler), out)
}

// goTask is a task that a test writes.
type goTask func(out *abi.ArrowDeviceArray) int

func (f goTask) ExtractData(out *abi.ArrowDeviceArray) int { return f(out) }
func (goTask) Release()                                    {}

func (p *goProducer) send(f goTask) int {
	task := new(abi.ArrowAsyncTask)
	bridge.ExportTask(f, task)
	return bridge.CallOnNextTask(abi.As[abi.ArrowAsyncDeviceStreamHandler](p.handler), task, nil)
}

// The end of ctx ends a stream even if its producer has done all that it does.
func TestAsyncStreamEndsWithItsContextWhenItsProducerIsGone(t *testing.T) {
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	p := consumed(t, ctx, cdevice.WithQueueSize(3))
	require.Zero(t, p.begin())
	p.send(3)
	p.End()
	p.Release()
	cancel()
	within.Eventually(t, "what was ready is dropped", func() bool {
		return p.tasks[0].Extracted()+p.tasks[1].Extracted()+p.tasks[2].Extracted() == 3
	})
	n, err := p.all()
	assert.Zero(t, n)
	assert.ErrorIs(t, err, context.Canceled)
}

// Whoever ended the stream: when Close returns, nothing is left.
func TestAsyncStreamCloseWaitsForWhatSomebodyElseDrops(t *testing.T) {
	settles(t)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	h := new(cdevice.CArrowAsyncDeviceStreamHandler)
	s := importAsync(t, ctx, h)
	p := newGoProducer(t, h)
	require.Zero(t, p.begin(t))
	var extracted atomic.Int64
	inside, let := make(chan struct{}), make(chan struct{})
	require.Zero(t, p.send(func(*abi.ArrowDeviceArray) int { close(inside); <-let; extracted.Add(1); return 0 }))
	require.Zero(t, p.send(func(*abi.ArrowDeviceArray) int { extracted.Add(1); return 0 }))
	cancel()
	<-inside
	assert.Zero(t, bridge.CallOnNextTask(abi.As[abi.ArrowAsyncDeviceStreamHandler](h), nil, nil))
	bridge.CallHandlerRelease(abi.As[abi.ArrowAsyncDeviceStreamHandler](h))
	var closed sync.WaitGroup
	for range 2 {
		closed.Go(func() {
			s.close()
			assert.EqualValues(t, 2, extracted.Load())
		})
	}
	close(let)
	closed.Wait()
}

// The producer is told to cancel before the tasks that are ready are dropped.
func TestAsyncStreamCancelsBeforeItDrops(t *testing.T) {
	settles(t)
	h := new(cdevice.CArrowAsyncDeviceStreamHandler)
	s := importAsync(t, background, h)
	p := newGoProducer(t, h)
	cancelled := make(chan struct{})
	p.cancel = func() { close(cancelled) }
	require.Zero(t, p.begin(t))
	require.Zero(t, p.send(func(*abi.ArrowDeviceArray) int { <-cancelled; return 0 }))
	closed := make(chan struct{})
	go func() { s.close(); close(closed) }()
	<-cancelled
	bridge.CallHandlerRelease(abi.As[abi.ArrowAsyncDeviceStreamHandler](h))
	<-closed
}

// A producer that has said the end is not called any more: not to cancel either.
func TestAsyncStreamDoesNotCancelAfterTheEnd(t *testing.T) {
	settles(t)
	h := new(cdevice.CArrowAsyncDeviceStreamHandler)
	s := importAsync(t, background, h)
	p := newGoProducer(t, h)
	var cancels atomic.Int64
	p.cancel = func() { cancels.Add(1) }
	require.Zero(t, p.begin(t))
	dropped := make(chan struct{}) // which comes after the cancel, where there is one
	require.Zero(t, p.send(func(*abi.ArrowDeviceArray) int { close(dropped); return 0 }))
	require.Zero(t, bridge.CallOnNextTask(abi.As[abi.ArrowAsyncDeviceStreamHandler](h), nil, nil))
	closed := make(chan struct{})
	go func() { s.close(); close(closed) }()
	<-dropped
	assert.Zero(t, cancels.Load())
	bridge.CallHandlerRelease(abi.As[abi.ArrowAsyncDeviceStreamHandler](h))
	<-closed
}

// A second on_schema is refused, wherever it comes from.
func TestAsyncStreamRefusesASchemaFromInsideItsRequest(t *testing.T) {
	settles(t)
	h := new(cdevice.CArrowAsyncDeviceStreamHandler)
	s := importAsync(t, background, h)
	p := newGoProducer(t, h)
	var second int
	p.request = func(int64) { second = p.begin(t) }
	assert.Zero(t, p.begin(t))
	assert.EqualValues(t, syscall.EINVAL, second)
	bridge.CallHandlerRelease(abi.As[abi.ArrowAsyncDeviceStreamHandler](h))
	for _, err := range s.All() {
		assert.ErrorContains(t, err, "on_schema = called, want the first call, once")
	}
	s.close()
}

func TestAsyncStreamSchemaThatIsKnownNeedsNoWait(t *testing.T) {
	p := consumed(t, soon(t))
	require.Zero(t, p.begin())
	ctx, cancel := context.WithCancel(background)
	cancel()
	for range 100 {
		_, err := p.s.schema(ctx)
		require.NoError(t, err)
	}
}

// What a task failed with is told, whatever ends the wait for more.
func TestAsyncStreamTellsATaskThatFailedWhenItsContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	p := consumed(t, ctx, cdevice.WithQueueSize(1))
	require.Zero(t, p.begin())
	require.Zero(t, p.Send(p.task(int(syscall.ENOSPC)), nil))
	result := make(chan error, 1)
	go func() { _, err := p.all(); result <- err }()
	require.NoError(t, p.WaitRequested(2))
	cancel()
	assert.ErrorIs(t, <-result, syscall.ENOSPC)
	require.NoError(t, p.WaitCancelled())
	p.Release()
}

func TestAsyncStreamRequestsFitAnInt64(t *testing.T) {
	p := consumed(t, soon(t), cdevice.WithQueueSize(1<<20))
	require.Zero(t, p.begin())
	p.send(2)
	p.take(2)
	require.NoError(t, p.WaitRequested(1<<20+2))
}

// The first error counts.
func TestAsyncStreamKeepsItsFirstError(t *testing.T) {
	p := consumed(t, soon(t))
	require.Zero(t, p.begin())
	p.Error(5, "first", nil)
	p.Error(22, "second", nil)
	_, err := p.all()
	assert.ErrorContains(t, err, "first")
	p.Release()
	_, err = p.all()
	assert.ErrorContains(t, err, "first", "again")
	p.s.close()
	assert.ErrorContains(t, p.s.r.Err(), "first", "after Close too")
	assert.Zero(t, p.Calls().Cancels, "a stream that has ended is not cancelled")
}

// A context is forgotten with its stream.
func TestAsyncStreamForgetsItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	p := consumed(t, ctx)
	require.Zero(t, p.begin())
	p.End()
	p.Release()
	n, err := p.all()
	assert.Zero(t, n)
	assert.NoError(t, err)
	p.s.close()
	cancel()
	assert.NoError(t, p.s.r.Err())
}

// Metadata of a batch goes with it through readers whose schema is another object.
func TestAsyncMetadataOfABatchSurvivesAnEqualSchema(t *testing.T) {
	settles(t)
	md := arrow.NewMetadata([]string{"k"}, []string{"v"})
	smd := numberedSchema.Metadata()
	same := arrow.NewSchema(numberedSchema.Fields(), &smd)
	batch := numbered(t, 1)[0]
	r := yields(t, same, func(yield func(*cdevice.RecordBatch, error) bool) {
		with := batch.WithMetadata(md)
		defer with.Release()
		yield(with, nil)
	})
	c, err := r.CopyTo(background, device.CPUDevice())
	require.NoError(t, err)
	s := connect(t, soon(t), c, nil)
	c.Release()
	n := 0
	for b, err := range s.All() {
		require.NoError(t, err)
		assert.True(t, md.Equal(b.Metadata()), "%v", b.Metadata())
		n++
	}
	assert.Equal(t, 1, n)
}

// The metadata of an error goes through a chain of streams.
func TestAsyncErrorMetadataIsPassedOn(t *testing.T) {
	settles(t)
	md := arrow.NewMetadata([]string{"retry"}, []string{"a\x00b"})
	r := yields(t, numberedSchema, func(yield func(*cdevice.RecordBatch, error) bool) {
		yield(nil, &cdevice.ProducerError{Callback: "ArrowAsyncDeviceStreamHandler.on_error", Code: 5, Message: "x\x00y", Metadata: md})
	})
	s := connect(t, soon(t), r, nil)
	_, err := numbersOf(t, s.All())
	var e *cdevice.ProducerError
	require.ErrorAs(t, err, &e)
	assert.Equal(t, 5, e.Code)
	assert.True(t, md.Equal(e.Metadata), "%v", e.Metadata)
	assert.Contains(t, e.Message, "x\ufffdy", "a text for C has no NUL")
}

// bomb is a record batch whose last Release panics.
type bomb struct{ arrow.RecordBatch }

func (b bomb) Release() {
	b.RecordBatch.Release()
	panic("in the batch's Release")
}

func bombs(t *testing.T, n int, stop func()) *cdevice.RecordReader {
	t.Helper()
	r, err := cdevice.NewRecordReaderFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) {
		if n--; n < 0 {
			return nil, io.EOF
		}
		rec := numberedRecord(n)
		defer rec.Release()
		return cdevice.WrapRecordBatch(bomb{rec}, device.CPUDevice())
	}, stop)
	require.NoError(t, err)
	return r
}

// Panics of a program's code end neither the process nor what they have nothing to do with.
func TestAsyncProducerSurvivesPanicsOfItsProgram(t *testing.T) {
	t.Run("stop", func(t *testing.T) {
		settles(t)
		seen := panics(t)
		r := bombs(t, 0, func() { panic("in stop") })
		c := exported(t, background, cpeer.Behaviour{}, r)
		require.NoError(t, c.WaitReleased())
		func() {
			defer func() { _ = recover() }() // if this is the last reference
			r.Release()
		}()
		within.Eventually(t, "the end", func() bool { return cdevice.ReadStats().AsyncProducers == 0 })
		assert.LessOrEqual(t, seen.Load(), int64(1))
	})
	t.Run("a batch that is refused", func(t *testing.T) {
		settles(t)
		seen := panics(t)
		r := bombs(t, 1, nil)
		c := exported(t, background, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 1, TaskCode: 5}, r)
		require.NoError(t, c.WaitReleased())
		assert.Equal(t, events(1, cpeer.Release), c.Events())
		r.Release()
		within.Eventually(t, "the panic", func() bool { return seen.Load() == 1 })
	})
	t.Run("a batch that was extracted", func(t *testing.T) {
		settles(t)
		seen := panics(t)
		r := bombs(t, 1, nil)
		c := exported(t, background, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 1}, r)
		r.Release()
		require.NoError(t, c.WaitReleased())
		assert.Equal(t, events(1, cpeer.OnEnd, cpeer.Release), c.Events())
		out := new(cdevice.CArrowDeviceArray)
		assert.Zero(t, cpeer.Extract(&c.Tasks()[0], abi.As[abi.ArrowDeviceArray](out)))
		assert.Zero(t, seen.Load(), "the array holds the batch")
		cdevice.ReleaseCArrowDeviceArray(out)
		assert.EqualValues(t, 1, seen.Load())
	})
}

// A task that is not wanted is not exported.
func TestAsyncTaskThatIsNotWantedIsNotExported(t *testing.T) {
	settles(t)
	restore := bridge.LimitBlocks(1 << 20) // enough for the producer's struct
	defer restore()
	c := exported(t, background, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 1}, repeated(t, twoColumns(t), 1))
	require.NoError(t, c.WaitReleased())
	bridge.LimitBlocks(0)
	assert.Zero(t, cpeer.Extract(&c.Tasks()[0], nil))
}

// After cancel there is no on_error, even if something had gone wrong before.
func TestAsyncProducerTellsNoErrorAfterCancel(t *testing.T) {
	settles(t)
	b := cpeer.Behaviour{SchemaRequests: 1, SchemaN: -1, CancelInSchema: true}
	c := exported(t, background, b, yields(t, numberedSchema, yielding(errSource)))
	require.NoError(t, c.WaitReleased())
	assert.Equal(t, events(0, cpeer.Release), c.Events())
}
