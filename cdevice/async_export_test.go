package cdevice_test

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/errno"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Each test here is a rule for producers: ours faces a consumer written in C.

// endless is a reader that repeats a batch for ever.
func endless(t *testing.T, rec arrow.RecordBatch) *cdevice.RecordReader {
	batch := wrap(t, rec)
	return yields(t, rec.Schema(), func(yield func(*cdevice.RecordBatch, error) bool) {
		for yield(batch, nil) {
		}
	})
}

// silent is a reader that waits for a batch until the test ends; asked is closed when it does.
func silent(t *testing.T, rec arrow.RecordBatch) (r *cdevice.RecordReader, asked chan struct{}) {
	asked, end := make(chan struct{}), make(chan struct{})
	r = yields(t, rec.Schema(), func(func(*cdevice.RecordBatch, error) bool) {
		close(asked)
		<-end
	})
	t.Cleanup(func() { close(end) })
	return r, asked
}

// An idle producer sleeps: while the consumer asks for nothing, and while the source has
// nothing.
func TestAsyncProducerThatIsIdleUsesNoCPU(t *testing.T) {
	settles(t)
	rec := twoColumns(t)
	r, asked := silent(t, rec)
	noBatch := exported(t, background, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 5}, r)
	noRequest := exported(t, background, cpeer.Behaviour{}, endless(t, rec))
	<-asked
	require.NoError(t, noBatch.WaitEvent(cpeer.OnSchema))
	require.NoError(t, noRequest.WaitEvent(cpeer.OnSchema))
	const idle = 300 * time.Millisecond
	runtime.GC()
	assert.True(t, within.Becomes(10*time.Second, func() bool { // the runtime may have work of its own for a while
		before := cpuTime(t)
		time.Sleep(idle)
		return cpuTime(t)-before < idle/5
	}))
	noBatch.Producer().Cancel()
	noRequest.Producer().Cancel()
}

// TestAsyncProducerStream has the calls that a consumer gets from on_schema to release, and what Wait
// returns afterwards.
func TestAsyncProducerStream(t *testing.T) {
	type row struct {
		b       cpeer.Behaviour
		batches int
		fails   error // of the source, after its batches; nil: the end
		want    []cpeer.Event
		why     error // that Wait returns
	}
	ended := func(n int) []cpeer.Event { return events(n, cpeer.OnEnd, cpeer.Release) }
	rows := map[string]row{
		"no batch":              {b: cpeer.Behaviour{SchemaRequests: 1, SchemaN: 10}, want: ended(0)},
		"three batches":         {b: cpeer.Behaviour{SchemaRequests: 1, SchemaN: 10}, batches: 3, want: ended(3)},
		"no request":            {want: ended(0)},
		"no request at the end": {b: cpeer.Behaviour{SchemaRequests: 2, SchemaN: 1}, batches: 2, want: ended(2)},
		"ten thousand requests inside its calls": {
			b: cpeer.Behaviour{SchemaRequests: 10_000, SchemaN: 1, TaskRequests: 10_000, TaskN: 1}, batches: 20, want: ended(20),
		},
		"tasks that are dropped at once": {b: cpeer.Behaviour{SchemaRequests: 1, SchemaN: 100, DropAtOnce: true}, batches: 50, want: ended(50)},
		"a schema that is not taken":     {b: cpeer.Behaviour{LeaveSchema: true}, want: ended(0)},

		"a refused schema": {b: cpeer.Behaviour{SchemaCode: errno.Code(syscall.ENOMEM)}, batches: 1, want: events(0, cpeer.Release), why: syscall.ENOMEM},
		"a refused schema that is not taken": {
			b: cpeer.Behaviour{LeaveSchema: true, SchemaCode: 22}, want: events(0, cpeer.Release), why: arrow.ErrInvalid,
		},
		"a refused task": {
			b:       cpeer.Behaviour{SchemaRequests: 1, SchemaN: 10, TaskCode: errno.Code(syscall.ETIMEDOUT)},
			batches: 3, want: events(1, cpeer.Release), why: context.DeadlineExceeded,
		},
		"a refused second task": {
			b:       cpeer.Behaviour{SchemaRequests: 1, SchemaN: 10, TaskCode: 5, TaskCodeAt: 1},
			batches: 3, want: events(2, cpeer.Release), why: syscall.EIO,
		},
		"a refused end": {
			b:       cpeer.Behaviour{SchemaRequests: 1, SchemaN: 10, TaskCode: 5, TaskCodeAt: 3},
			batches: 3, want: ended(3), why: syscall.EIO,
		},
		"an error": {b: cpeer.Behaviour{SchemaRequests: 1, SchemaN: 10}, batches: 2, fails: errSource,
			want: events(2, cpeer.OnError, cpeer.Release), why: errSource},

		// After cancel there is only release. TestAsyncProducerCancel has requests after it.
		"cancel in on_schema": {
			b: cpeer.Behaviour{CancelInSchema: true, SchemaRequests: 5, SchemaN: 1}, batches: 30, want: events(0, cpeer.Release), why: context.Canceled,
		},
		"cancel in on_schema, of a source that fails": {
			b: cpeer.Behaviour{CancelInSchema: true, SchemaRequests: 1, SchemaN: -1}, fails: errSource, want: events(0, cpeer.Release), why: arrow.ErrInvalid,
		},
		"cancel in on_next_task": {
			b:       cpeer.Behaviour{CancelAt: 2, SchemaRequests: 1, SchemaN: 2, TaskRequests: 1, TaskN: 3},
			batches: 30, want: events(2, cpeer.Release), why: context.Canceled,
		},
		"cancel in on_next_task, of a source that fails then": {
			b: cpeer.Behaviour{CancelAt: 1, SchemaRequests: 1, SchemaN: 5}, batches: 1, fails: errSource,
			want: events(1, cpeer.Release), why: context.Canceled,
		},
	}
	for often := range int64(4) { // some sums that wrap are positive, and some are not
		rows[fmt.Sprint("sums that overflow ", often)] = row{
			b:       cpeer.Behaviour{SchemaRequests: 1 + often, SchemaN: math.MaxInt64, TaskRequests: often, TaskN: math.MaxInt64},
			batches: 5, want: ended(5),
		}
	}
	rec := twoColumns(t)
	batch := wrap(t, rec)
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			settles(t)
			r := yields(t, rec.Schema(), yielding(row.fails, times(row.batches, batch)...))
			c := exported(t, background, row.b, r)
			assert.ErrorIs(t, c.Wait(background), row.why)
			assert.Equal(t, row.want, c.Events())
			assert.EqualValues(t, device.CPU, c.DeviceType())
			assert.Zero(t, c.Metadata())
			for i := range c.Tasks() {
				out := garbageArray()
				code := cpeer.Extract(&c.Tasks()[i], abi.As[abi.ArrowDeviceArray](out))
				if row.b.DropAtOnce || row.b.TaskCode != 0 && i == row.b.TaskCodeAt {
					assert.Equal(t, errno.Code(syscall.EINVAL), code, "a task that was dropped or refused is gone")
					continue
				}
				require.Zero(t, code)
				back, err := cdevice.ImportRecordBatchWithSchema(out, rec.Schema())
				require.NoError(t, err)
				assert.True(t, sameRecord(t, rec, back))
				back.Release()
			}
		})
	}
}

// Release comes while the source waits for a batch.
func TestAsyncProducerEndsWhileItsSourceWaits(t *testing.T) {
	for name, row := range map[string]struct {
		end  func(c cpeer.Consumer, cancel func())
		want []cpeer.Event
		why  error
	}{
		"cancel":      {func(c cpeer.Consumer, _ func()) { c.Producer().Cancel() }, events(0, cpeer.Release), context.Canceled},
		"context":     {func(_ cpeer.Consumer, cancel func()) { cancel() }, events(0, cpeer.OnError, cpeer.Release), context.Canceled},
		"bad request": {func(c cpeer.Consumer, _ func()) { c.Producer().Request(0) }, events(0, cpeer.OnError, cpeer.Release), arrow.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			settles(t)
			ctx, cancel := context.WithCancel(background)
			defer cancel()
			r, asked := silent(t, twoColumns(t))
			c := exported(t, ctx, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 5}, r)
			<-asked
			assert.EqualError(t, c.Wait(canceled), "cdevice: wait: context canceled", "it is not the end of the stream")
			expires(t, c.Wait)
			row.end(c.Consumer, cancel)
			assert.ErrorIs(t, c.Wait(background), row.why)
			assert.Equal(t, row.want, c.Events())
			assert.ErrorIs(t, c.Wait(ctx), row.why, "even if ctx is done")
			assert.ErrorContains(t, c.Wait(ctx), "cdevice: export: ", "and not of Wait")
		})
	}
}

// TestAsyncProducerRequest is about the calls of a producer's request.
func TestAsyncProducerRequest(t *testing.T) {
	t.Run("no more batches than requested", func(t *testing.T) {
		settles(t)
		rec := twoColumns(t)
		batch := wrap(t, rec)
		var made atomic.Int64
		aheadOf := make(chan int64, 100)
		r := yields(t, rec.Schema(), func(yield func(*cdevice.RecordBatch, error) bool) {
			for {
				aheadOf <- made.Add(1)
				if !yield(batch, nil) {
					return
				}
			}
		})
		c := exported(t, background, cpeer.Behaviour{}, r)
		assert.EqualValues(t, 1, <-aheadOf, "one batch is taken before it is asked for")
		require.NoError(t, c.WaitEvent(cpeer.OnSchema))
		sent := 0
		for _, n := range []int{1, 3, 2} {
			c.Producer().Request(int64(n))
			sent += n
			require.NoError(t, c.WaitTasks(sent))
			for range n {
				<-aheadOf
			}
			assert.EqualValues(t, sent+1, made.Load(), "and no more than one")
		}
		c.Producer().Cancel()
		require.NoError(t, c.WaitReleased())
		assert.Equal(t, events(sent, cpeer.Release), c.Events())
	})
	t.Run("from many threads", func(t *testing.T) {
		settles(t)
		c := exported(t, background, cpeer.Behaviour{}, repeated(t, twoColumns(t), 100))
		require.NoError(t, c.WaitEvent(cpeer.OnSchema))
		require.NoError(t, c.Producer().RequestOnThreads(4, 16))
		require.NoError(t, c.WaitTasks(64))
		c.Producer().Cancel()
		require.NoError(t, c.WaitReleased())
		assert.Equal(t, events(64, cpeer.Release), c.Events())
	})
	t.Run("for nothing is answered with on_error", func(t *testing.T) {
		settles(t)
		rec := twoColumns(t)
		for _, n := range []int64{0, -1, math.MinInt64} {
			for name, b := range map[string]cpeer.Behaviour{
				"in on_schema":    {SchemaRequests: 1, SchemaN: n},
				"in on_next_task": {SchemaRequests: 1, SchemaN: 1, TaskRequests: 1, TaskN: n},
				"later":           {},
			} {
				t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
					c := exported(t, background, b, repeated(t, rec, 3))
					if name == "later" {
						require.NoError(t, c.WaitEvent(cpeer.OnSchema))
						c.Producer().Request(n)
					}
					require.NoError(t, c.WaitReleased())
					assert.Equal(t, []cpeer.Event{cpeer.OnError, cpeer.Release}, c.Events()[len(c.Events())-2:])
					code, text := c.Error()
					assert.Equal(t, errno.Code(syscall.EINVAL), code)
					assert.Contains(t, text, fmt.Sprintf("ArrowAsyncProducer.request.n = %d, want at least 1", n))
				})
			}
		}
	})
}
