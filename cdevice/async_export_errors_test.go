package cdevice_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/errno"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// exiting is an arrow-go reader whose Next ends the goroutine that calls it.
type exiting struct{ panicking }

func (exiting) Next() bool { runtime.Goexit(); return false }

// TestAsyncProducerErrors is about failures of our producer, each of which releases the handler.
func TestAsyncProducerErrors(t *testing.T) {
	t.Run("reported to the handler", func(t *testing.T) {
		settles(t)
		rec := twoColumns(t)
		s, batch := rec.Schema(), wrap(t, rec)
		fails := func(n int, fail func(yield func(*cdevice.RecordBatch, error) bool)) *cdevice.RecordReader {
			return yields(t, s, func(yield func(*cdevice.RecordBatch, error) bool) {
				for range n {
					if !yield(batch, nil) {
						return
					}
				}
				fail(yield)
			})
		}
		yielding := func(err error) func(func(*cdevice.RecordBatch, error) bool) {
			return func(yield func(*cdevice.RecordBatch, error) bool) { yield(nil, err) }
		}
		late, cancel := context.WithTimeout(background, -1)
		cancel()
		huge := make([]string, 1<<16+1)
		exits, err := cdevice.WrapRecordReader(exiting{}, device.CPUDevice())
		require.NoError(t, err)
		t.Cleanup(exits.Release)
		shut := repeated(t, rec, 1)
		closes(t, shut)
		other := new(cdevice.CArrowAsyncDeviceStreamHandler)
		consumer, err := cdevice.ImportAsync(background, other, 1)
		require.NoError(t, err)
		export, err := cdevice.ExportAsync(background, repeated(t, rec, 5), other)
		require.NoError(t, err)
		require.NoError(t, consumer.Close(background))
		unknown := arrow.NewSchema([]arrow.Field{{Name: "\x00", Type: arrow.PrimitiveTypes.Int8}}, nil)

		for name, row := range map[string]struct {
			ctx   context.Context
			r     *cdevice.RecordReader
			tasks int // -1: not even on_schema
			code  syscall.Errno
			text  string
		}{
			"an error":                      {r: fails(2, yielding(errors.New("disk on fire"))), tasks: 2, code: syscall.EIO, text: "disk on fire"},
			"an error with a code":          {r: fails(1, yielding(&cdevice.ProducerError{Callback: "ArrowAsyncTask.extract_data", Code: errno.Code(syscall.ETIMEDOUT), Message: "too slow"})), tasks: 1, code: syscall.ETIMEDOUT, text: "too slow"},
			"a panic":                       {r: fails(1, func(func(*cdevice.RecordBatch, error) bool) { panic("lost it") }), tasks: 1, code: syscall.EIO, text: "panic: lost it"},
			"a goroutine that ends":         {r: fails(1, func(func(*cdevice.RecordBatch, error) bool) { runtime.Goexit() }), tasks: 1, code: syscall.EIO, text: "goroutine"},
			"a reader that ends its caller": {r: exits, tasks: 0, code: syscall.EIO, text: "ended its goroutine"},
			"an ended context":              {ctx: canceled, r: repeated(t, rec, 1), tasks: 0, code: syscall.ECANCELED, text: "context canceled"},
			"a closed reader":               {r: shut, tasks: 0, code: syscall.ECANCELED, text: "closed"},
			"the end of another stream":     {r: fails(1, yielding(export.Wait(background))), tasks: 1, code: syscall.ECANCELED, text: "cdevice: export: Arrow"},
			"a late context":                {ctx: late, r: repeated(t, rec, 1), tasks: 0, code: syscall.ETIMEDOUT, text: "deadline"},
			"a schema that C has not":       {r: yields(t, unknown, func(func(*cdevice.RecordBatch, error) bool) {}), tasks: -1, code: syscall.EINVAL, text: "ArrowSchema.children[0].name"},
			"too much metadata": {r: repeated(t, rec, 1).WithMetadata(arrow.NewMetadata(huge, huge)),
				tasks: -1, code: syscall.EINVAL, text: "ArrowAsyncProducer.additional_metadata.n = 65537, want 0 to 65536"},
			"too much metadata of a batch": {r: fails(1, func(yield func(*cdevice.RecordBatch, error) bool) {
				with := batch.WithMetadata(arrow.NewMetadata(huge, huge))
				defer with.Release()
				yield(with, nil)
			}), tasks: 1, code: syscall.EINVAL, text: "RecordBatch.metadata.n = 65537"},
		} {
			t.Run(name, func(t *testing.T) {
				if row.ctx == nil {
					row.ctx = background
				}
				c := exported(t, row.ctx, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 10}, row.r)
				require.NoError(t, c.WaitReleased())
				want := events(row.tasks, cpeer.OnError, cpeer.Release)
				if row.tasks < 0 {
					want = want[1:]
				}
				assert.Equal(t, want, c.Events())
				assert.NotZero(t, c.Handler().Producer, "there is one before anything is called but release")
				code, text := c.Error()
				assert.Equal(t, errno.Code(row.code), code, text)
				assert.Contains(t, text, row.text)
				why := c.Wait(background)
				assert.ErrorContains(t, why, row.text)
				if name == "a panic" {
					var stacked interface{ Stack() []byte }
					require.ErrorAs(t, why, &stacked)
					assert.Contains(t, string(stacked.Stack()), "TestAsyncProducerErrors", "the stack of the source")
				}
			})
		}
	})
	t.Run("no memory for its struct", func(t *testing.T) {
		settles(t)
		rec := twoColumns(t)
		restore := bridge.LimitBlocks(0)
		defer restore()
		c := exported(t, background, cpeer.Behaviour{}, repeated(t, rec, 1))
		require.NoError(t, c.WaitReleased())
		assert.Equal(t, []cpeer.Event{cpeer.OnError, cpeer.Release}, c.Events())
		code, _ := c.Error()
		assert.Equal(t, errno.Code(syscall.ENOMEM), code)
	})
	t.Run("a handler that cannot be told", func(t *testing.T) {
		settles(t)
		r := repeated(t, twoColumns(t), 1)
		for want, change := range map[string]func(*cdevice.CArrowAsyncDeviceStreamHandler){
			"ArrowAsyncDeviceStreamHandler.on_schema = NULL":    func(h *cdevice.CArrowAsyncDeviceStreamHandler) { h.OnSchema = 0 },
			"ArrowAsyncDeviceStreamHandler.on_next_task = NULL": func(h *cdevice.CArrowAsyncDeviceStreamHandler) { h.OnNextTask = 0 },
			"ArrowAsyncDeviceStreamHandler.on_error = NULL":     func(h *cdevice.CArrowAsyncDeviceStreamHandler) { h.OnError = 0 },
		} {
			c := cpeer.NewConsumer(cpeer.Behaviour{})
			change(publicHandler(c))
			_, err := cdevice.ExportAsync(background, r, publicHandler(c))
			assert.ErrorContains(t, err, want)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
			assert.Equal(t, []cpeer.Event{cpeer.Release}, c.Events(), "it owns the handler all the same")
			c.Free()
		}
		_, err := cdevice.ExportAsync(background, r, new(cdevice.CArrowAsyncDeviceStreamHandler))
		assert.ErrorIs(t, err, cdevice.ErrReleased)
	})
	// The consumer learns why there is no stream, before ExportAsync returns.
	t.Run("arguments that are refused", func(t *testing.T) {
		settles(t)
		gone := asked(t, nil)
		gone.Release()
		for want, row := range map[string]struct {
			ctx context.Context
			r   *cdevice.RecordReader
		}{
			"RecordReader: invalid: already released": {background, gone},
			"RecordReader = nil, want a reader":       {background, nil},
			nilCtx:                                    {noCtx, repeated(t, twoColumns(t), 1)},
		} {
			c := cpeer.NewConsumer(cpeer.Behaviour{})
			_, err := cdevice.ExportAsync(row.ctx, row.r, publicHandler(c))
			assert.ErrorContains(t, err, want)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
			assert.Equal(t, []cpeer.Event{cpeer.OnError, cpeer.Release}, c.Events())
			assert.NotZero(t, c.Handler().Producer, "there is one before anything is called but release")
			code, text := c.Error()
			assert.Equal(t, errno.Code(syscall.EINVAL), code)
			assert.EqualError(t, err, text)
			c.Free()

			h := new(cdevice.CArrowAsyncDeviceStreamHandler)
			s := importAsync(t, background, h, 0)
			_, err = cdevice.ExportAsync(row.ctx, row.r, h)
			assert.Error(t, err)
			_, err = s.Reader(background)
			assert.ErrorContains(t, err, want)
			s.close()
		}
	})
	// The second stream to a handler is an error that the first one does not notice.
	t.Run("a handler in use", func(t *testing.T) {
		settles(t)
		c := exported(t, background, cpeer.Behaviour{}, repeated(t, twoColumns(t), 1))
		second := asked(t, nil)
		defer second.Release()
		for _, r := range []*cdevice.RecordReader{second, nil} {
			_, err := cdevice.ExportAsync(background, r, publicHandler(c.Consumer))
			assert.EqualError(t, err, "cdevice: export: ArrowAsyncDeviceStreamHandler = in use, want a handler that no other stream has: invalid")
			assert.ErrorIs(t, err, arrow.ErrInvalid)
		}
		require.NoError(t, c.WaitEvent(cpeer.OnSchema))
		c.Producer().Request(1)
		assert.NoError(t, c.Wait(background))
		assert.Equal(t, events(1, cpeer.OnEnd, cpeer.Release), c.Events())
	})
	// The struct of a handler that was released may be another handler.
	t.Run("a handler that was used before", func(t *testing.T) {
		settles(t)
		h := new(cdevice.CArrowAsyncDeviceStreamHandler)
		for range 2 {
			s := importAsync(t, background, h, 0)
			_, err := cdevice.ExportAsync(background, nil, h)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
			s.close()
			s = importAsync(t, background, h, 0)
			_, err = cdevice.ExportAsync(background, repeated(t, twoColumns(t), 1), h)
			require.NoError(t, err)
			for _, err := range s.All() {
				assert.NoError(t, err)
			}
			s.close()
		}
	})
}

// Asynchronous streams with unusual calls of producers, consumers and programs.

// goProducer is a producer whose callbacks a test writes in Go.
type goProducer struct {
	handler *abi.ArrowAsyncDeviceStreamHandler // of s
	s       *asyncStream
	c       *abi.ArrowAsyncProducer
	request func(int64)
	cancel  func()
}

func newGoProducer(t *testing.T, ctx context.Context) *goProducer {
	t.Helper()
	settles(t)
	h := new(cdevice.CArrowAsyncDeviceStreamHandler)
	p := &goProducer{handler: abi.As[abi.ArrowAsyncDeviceStreamHandler](h), request: func(int64) {}, cancel: func() {}}
	p.s = importAsync(t, ctx, h, 0)
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
	return bridge.CallOnSchema(p.handler, out)
}

// goTask is a task that a test writes.
type goTask func(out *abi.ArrowDeviceArray) int

func (f goTask) ExtractData(out *abi.ArrowDeviceArray) int { return f(out) }
func (goTask) Release()                                    {}

func (p *goProducer) send(f goTask) int {
	task := new(abi.ArrowAsyncTask)
	bridge.ExportTask(f, task)
	return bridge.CallOnNextTask(p.handler, task, nil)
}

// Metadata of a batch goes with it through readers whose schema is another object: that of WithMetadata, and
// that of the record batch that was wrapped.
func TestAsyncMetadataAndAnEqualSchema(t *testing.T) {
	md := arrow.NewMetadata([]string{"k"}, []string{"v"})
	schemaMetadata := numberedSchema.Metadata()
	same := arrow.NewSchema(numberedSchema.Fields(), &schemaMetadata)
	rec := numberedRecord(1)
	defer rec.Release()
	withMetadata := array.NewRecordBatchWithMetadata(rec.Schema(), rec.Columns(), 1, md)
	defer withMetadata.Release()
	for name, open := range map[string]func(t *testing.T) *cdevice.RecordBatch{
		"WithMetadata": func(t *testing.T) *cdevice.RecordBatch { return wrap(t, rec).WithMetadata(md) },
		"wrapped": func(t *testing.T) *cdevice.RecordBatch {
			b, err := cdevice.WrapRecordBatch(withMetadata, device.CPUDevice())
			require.NoError(t, err)
			return b
		},
	} {
		t.Run(name, func(t *testing.T) {
			settles(t)
			batch := open(t)
			defer batch.Release()
			r := yields(t, same, yielding(nil, batch))
			s := connect(t, soon(t), r, 0)
			in, err := s.reader(soon(t))
			require.NoError(t, err)
			require.True(t, in.Next(), "%v", in.Err())
			assert.True(t, batch.Metadata().Equal(in.RecordBatch().Metadata()), "%v", in.RecordBatch().Metadata())
			assert.False(t, in.Next())
		})
	}
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

// TestAsyncStreamSchema is about Schema beside calls of the producer.
func TestAsyncStreamSchema(t *testing.T) {
	// A second on_schema is refused, wherever it comes from.
	t.Run("asked inside request", func(t *testing.T) {
		p := newGoProducer(t, background)
		var second int
		p.request = func(int64) { second = p.begin(t) }
		assert.Zero(t, p.begin(t))
		assert.EqualValues(t, errno.Code(syscall.EINVAL), second)
		bridge.CallHandlerRelease(p.handler)
		for _, err := range p.s.All() {
			assert.ErrorContains(t, err, "on_schema = called, want the first call, once")
		}
		p.s.close()
	})
	t.Run("known, without a wait", func(t *testing.T) {
		p := begun(t, soon(t), 0, 0)
		for range 100 {
			_, err := p.s.schema(canceled)
			require.NoError(t, err)
		}
	})
}

// The stream that has the handler may end between the checks of the second export.
func TestTwoExportsToOneHandlerAtOnce(t *testing.T) {
	checkLeaks(t)
	for range 10_000 {
		h := new(cdevice.CArrowAsyncDeviceStreamHandler)
		s, err := cdevice.ImportAsync(background, h, 1)
		require.NoError(t, err)
		var exports atomic.Int32
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				r, err := cdevice.NewRecordReader(arrow.NewSchema(nil, nil), device.CPU, func(func(*cdevice.RecordBatch, error) bool) {})
				if !assert.NoError(t, err) {
					return
				}
				defer r.Release()
				if _, err := cdevice.ExportAsync(background, r, h); err == nil {
					exports.Add(1)
				} else {
					assert.ErrorIs(t, err, arrow.ErrInvalid)
				}
			})
		}
		wg.Wait()
		require.NoError(t, s.Close(background))
		require.EqualValues(t, 1, exports.Load())
	}
}
