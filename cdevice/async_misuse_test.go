package cdevice_test

import (
	"context"
	"io"
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

// Asynchronous streams with unusual calls of producers, consumers and programs.

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

// Metadata of a batch goes with it through readers whose schema is another object.
func TestAsyncMetadataAndAnEqualSchema(t *testing.T) {
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
	s := connect(t, soon(t), c, 0)
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
	s := connect(t, soon(t), r, 0)
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
	r, err := readerFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) {
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

// Panics of a program's code end neither the process nor unrelated streams.
func TestAsyncProducerSurvivesPanics(t *testing.T) {
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
		cdevice.ReleaseStruct(out)
		assert.EqualValues(t, 1, seen.Load())
	})
}

// After cancel there is no on_error, even if something had gone wrong before.
func TestAsyncProducerTellsNoErrorAfterCancel(t *testing.T) {
	settles(t)
	b := cpeer.Behaviour{SchemaRequests: 1, SchemaN: -1, CancelInSchema: true}
	c := exported(t, background, b, yields(t, numberedSchema, yielding(errSource)))
	require.NoError(t, c.WaitReleased())
	assert.Equal(t, events(0, cpeer.Release), c.Events())
}

// TestAsyncStreamSchema is about Schema beside calls of the producer.
func TestAsyncStreamSchema(t *testing.T) {
	// A second on_schema is refused, wherever it comes from.
	t.Run("asked inside request", func(t *testing.T) {
		settles(t)
		h := new(cdevice.CArrowAsyncDeviceStreamHandler)
		s := importAsync(t, background, h, 0)
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
	})
	t.Run("known, without a wait", func(t *testing.T) {
		p := consumed(t, soon(t), 0)
		require.Zero(t, p.begin())
		ctx, cancel := context.WithCancel(background)
		cancel()
		for range 100 {
			_, err := p.s.schema(ctx)
			require.NoError(t, err)
		}
	})
}
