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
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Each test here is a rule for producers: ours faces a consumer written in C.

// extractAll extracts all tasks of a consumer and compares them with rec.
func extractAll(t *testing.T, c cpeer.Consumer, rec arrow.RecordBatch) {
	t.Helper()
	for i := range c.Tasks() {
		out := garbageArray()
		require.Zero(t, cpeer.Extract(&c.Tasks()[i], abi.As[abi.ArrowDeviceArray](out)))
		back, err := cdevice.ImportRecordBatchWithSchema(out, rec.Schema())
		require.NoError(t, err)
		assert.True(t, sameRecord(t, rec, back))
		back.Release()
	}
}

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

func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestAsyncProducerStream follows a stream from on_schema to release.
func TestAsyncProducerStream(t *testing.T) {
	t.Run("on_schema once and first, then tasks, the end, release", func(t *testing.T) {
		settles(t)
		rec := twoColumns(t)
		for _, n := range []int{0, 1, 3} {
			c := exported(t, background, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 10}, repeated(t, rec, n))
			require.NoError(t, c.WaitReleased())
			assert.Equal(t, events(n, cpeer.OnEnd, cpeer.Release), c.Events())
			assert.EqualValues(t, device.CPU, c.DeviceType())
			assert.Zero(t, c.Metadata())
			extractAll(t, c, rec)
		}
	})
	t.Run("the end needs no request", func(t *testing.T) {
		settles(t)
		rec := twoColumns(t)
		for n := range int64(3) {
			c := exported(t, background, cpeer.Behaviour{SchemaRequests: n, SchemaN: 1}, repeated(t, rec, int(n)))
			require.NoError(t, c.WaitReleased())
			assert.Equal(t, events(int(n), cpeer.OnEnd, cpeer.Release), c.Events())
		}
	})
	t.Run("only release after a non-zero return", func(t *testing.T) {
		settles(t)
		rec := twoColumns(t)
		for name, row := range map[string]struct {
			b    cpeer.Behaviour
			want []cpeer.Event
		}{
			"on_schema":       {cpeer.Behaviour{SchemaCode: int(syscall.ENOMEM)}, events(0, cpeer.Release)},
			"the first task":  {cpeer.Behaviour{TaskCode: -7}, events(1, cpeer.Release)},
			"the second task": {cpeer.Behaviour{TaskCode: 5, TaskCodeAt: 1}, events(2, cpeer.Release)},
			"the end":         {cpeer.Behaviour{TaskCode: 5, TaskCodeAt: 3}, events(3, cpeer.OnEnd, cpeer.Release)},
		} {
			t.Run(name, func(t *testing.T) {
				row.b.SchemaRequests, row.b.SchemaN = 1, 10
				c := exported(t, background, row.b, repeated(t, rec, 3))
				require.NoError(t, c.WaitReleased())
				assert.Equal(t, row.want, c.Events())
				if n := len(c.Tasks()); n == 1 || n == 2 {
					assert.Equal(t, int(syscall.EINVAL), cpeer.Extract(&c.Tasks()[n-1], abi.As[abi.ArrowDeviceArray](garbageArray())), "a refused task is gone")
				}
			})
		}
	})
	t.Run("a schema that is not taken is released", func(t *testing.T) {
		settles(t)
		rec := twoColumns(t)
		for _, code := range []int{0, 5} {
			c := exported(t, background, cpeer.Behaviour{LeaveSchema: true, SchemaCode: code}, repeated(t, rec, 0))
			require.NoError(t, c.WaitReleased())
		}
	})
	t.Run("release while the source waits", func(t *testing.T) {
		settles(t)
		rec := twoColumns(t)
		ctx, cancel := context.WithCancel(background)
		for name, row := range map[string]struct {
			end  func(cpeer.Consumer)
			want []cpeer.Event
		}{
			"cancel":      {func(c cpeer.Consumer) { c.Producer().Cancel() }, events(0, cpeer.Release)},
			"context":     {func(cpeer.Consumer) { cancel() }, events(0, cpeer.OnError, cpeer.Release)},
			"bad request": {func(c cpeer.Consumer) { c.Producer().Request(0) }, events(0, cpeer.OnError, cpeer.Release)},
		} {
			t.Run(name, func(t *testing.T) {
				with := background
				if name == "context" {
					with = ctx
				}
				r, asked := silent(t, rec)
				c := exported(t, with, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 5}, r)
				<-asked
				row.end(c)
				require.NoError(t, c.WaitReleased())
				assert.Equal(t, row.want, c.Events())
			})
		}
	})
	// request must not call on_next_task or on_error, and cancel no handler but on_error, while they run.
	t.Run("request and cancel call no handler", func(t *testing.T) {
		settles(t)
		for _, n := range []int64{1, 3, 0} { // the last is an error
			c := exported(t, background, cpeer.Behaviour{}, repeated(t, twoColumns(t), 2))
			require.NoError(t, c.WaitEvent(cpeer.OnSchema))
			c.Producer().Request(n)
			c.Producer().Cancel()
			require.NoError(t, c.WaitReleased())
			assert.Zero(t, c.Reentrant())
		}
	})
	// additional_metadata must be valid as long as the producer is: until release.
	t.Run("metadata lives until release", func(t *testing.T) {
		settles(t)
		md := arrow.NewMetadata([]string{"rows"}, []string{"many"})
		c := exported(t, background, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 5, DropAtOnce: true}, repeated(t, twoColumns(t), 3).WithMetadata(md))
		require.NoError(t, c.WaitReleased())
		assert.NotZero(t, c.Metadata())
		assert.False(t, c.MetadataChanged())
	})
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
	t.Run("ten thousand from inside its calls", func(t *testing.T) {
		settles(t)
		rec := twoColumns(t)
		c := exported(t, background, cpeer.Behaviour{SchemaRequests: 10_000, SchemaN: 1, TaskRequests: 10_000, TaskN: 1},
			repeated(t, rec, 20))
		require.NoError(t, c.WaitReleased())
		assert.Equal(t, events(20, cpeer.OnEnd, cpeer.Release), c.Events())
	})
	t.Run("sums do not overflow", func(t *testing.T) {
		settles(t)
		rec := twoColumns(t)
		for often := range int64(4) { // some sums that wrap are positive, and some are not
			c := exported(t, background, cpeer.Behaviour{SchemaRequests: 1 + often, SchemaN: math.MaxInt64, TaskRequests: often, TaskN: math.MaxInt64},
				repeated(t, rec, 5))
			require.NoError(t, c.WaitReleased())
			assert.Equal(t, events(5, cpeer.OnEnd, cpeer.Release), c.Events())
		}
	})
	t.Run("from many threads", func(t *testing.T) {
		settles(t)
		rec := twoColumns(t)
		c := exported(t, background, cpeer.Behaviour{}, repeated(t, rec, 100))
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
					assert.Equal(t, int(syscall.EINVAL), code)
					assert.Contains(t, text, fmt.Sprintf("ArrowAsyncProducer.request.n = %d, want at least 1", n))
				})
			}
		}
	})
}
