package cdevice_test

import (
	"context"
	"errors"
	"runtime"
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
)

// exiting is a reader whose Next ends the goroutine that calls it.
func exiting(t *testing.T, rec arrow.RecordBatch) *cdevice.RecordReader {
	r, err := cdevice.WrapRecordReader(goexit{rec.Schema()}, device.CPUDevice())
	require.NoError(t, err)
	t.Cleanup(r.Release)
	return r
}

type goexit struct{ schema *arrow.Schema }

func (goexit) Retain()                        {}
func (goexit) Release()                       {}
func (g goexit) Schema() *arrow.Schema        { return g.schema }
func (goexit) Next() bool                     { runtime.Goexit(); return false }
func (goexit) RecordBatch() arrow.RecordBatch { return nil }
func (goexit) Record() arrow.RecordBatch      { return nil }
func (goexit) Err() error                     { return nil }

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
		released := repeated(t, rec, 1)
		released.Retain()
		released.Release()
		gone, err := cdevice.NewRecordReader(s, device.CPU, func(func(*cdevice.RecordBatch, error) bool) {})
		require.NoError(t, err)
		gone.Release()
		ended, cancel := context.WithCancel(background)
		cancel()
		late, cancel := context.WithTimeout(background, -1)
		cancel()
		huge := make([]string, 1<<16+1)
		unknown := arrow.NewSchema([]arrow.Field{{Name: "\x00", Type: arrow.PrimitiveTypes.Int8}}, nil)

		for name, row := range map[string]struct {
			ctx   context.Context
			r     *cdevice.RecordReader
			tasks int // -1: not even on_schema
			code  syscall.Errno
			text  string
		}{
			"an error":                      {r: fails(2, yielding(errors.New("disk on fire"))), tasks: 2, code: syscall.EIO, text: "disk on fire"},
			"an error with a code":          {r: fails(1, yielding(&cdevice.ProducerError{Callback: "ArrowAsyncTask.extract_data", Code: 110, Message: "too slow"})), tasks: 1, code: syscall.ETIMEDOUT, text: "too slow"},
			"a panic":                       {r: fails(1, func(func(*cdevice.RecordBatch, error) bool) { panic("lost it") }), tasks: 1, code: syscall.EIO, text: "panic: lost it"},
			"a goroutine that ends":         {r: fails(1, func(func(*cdevice.RecordBatch, error) bool) { runtime.Goexit() }), tasks: 1, code: syscall.EIO, text: "goroutine"},
			"a reader that ends its caller": {r: exiting(t, rec), tasks: 0, code: syscall.EIO, text: "ended its goroutine"},
			"a released reader":             {r: gone, tasks: -1, code: syscall.EINVAL, text: "RecordReader: invalid: already released"},
			"an ended context":              {ctx: ended, r: repeated(t, rec, 1), tasks: 0, code: syscall.ECANCELED, text: "context canceled"},
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
				assert.Equal(t, row.code, syscall.Errno(code), text)
				assert.Contains(t, text, row.text)
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
		assert.Equal(t, int(syscall.ENOMEM), code)
	})
	t.Run("a handler that cannot be told", func(t *testing.T) {
		settles(t)
		r := repeated(t, twoColumns(t), 1)
		assert.ErrorIs(t, cdevice.ExportAsync(background, r, nil), arrow.ErrInvalid)
		released := new(cdevice.CArrowAsyncDeviceStreamHandler)
		assert.ErrorIs(t, cdevice.ExportAsync(background, r, released), cdevice.ErrReleased)
		for name, remove := range map[string]func(*cdevice.CArrowAsyncDeviceStreamHandler){
			"on_schema":    func(h *cdevice.CArrowAsyncDeviceStreamHandler) { h.OnSchema = 0 },
			"on_next_task": func(h *cdevice.CArrowAsyncDeviceStreamHandler) { h.OnNextTask = 0 },
			"on_error":     func(h *cdevice.CArrowAsyncDeviceStreamHandler) { h.OnError = 0 },
		} {
			c := cpeer.NewConsumer(cpeer.Behaviour{})
			remove(abi.As[cdevice.CArrowAsyncDeviceStreamHandler](c.Handler()))
			assert.ErrorContains(t, cdevice.ExportAsync(background, r, abi.As[cdevice.CArrowAsyncDeviceStreamHandler](c.Handler())), "ArrowAsyncDeviceStreamHandler."+name+" = NULL")
			assert.Equal(t, []cpeer.Event{cpeer.Release}, c.Events(), "it owns the handler all the same")
			c.Free()
		}
	})
}
