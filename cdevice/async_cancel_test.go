package cdevice_test

import (
	"context"
	"io"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/errno"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Calls after cancel, of our producer and to our consumer.

// rounds are as many as it takes for two calls to reach the producer before it has woken up.
const rounds = 200

// TestAsyncProducerCancel tests the calls of our producer after cancel.
func TestAsyncProducerCancel(t *testing.T) {
	t.Run("from sixteen threads", func(t *testing.T) {
		settles(t)
		rec := twoColumns(t)
		for range 20 {
			c := exported(t, background, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 2000}, endless(t, rec))
			require.NoError(t, c.WaitTasks(5))
			require.NoError(t, c.Producer().CancelOnThreads(16))
			require.NoError(t, c.WaitReleased())
			require.NoError(t, c.Producer().CancelOnThreads(4), "and after release")
			assert.Equal(t, events(len(c.Events())-2, cpeer.Release), c.Events(), "no on_error")
		}
	})
	// The next batch is in the producer's hand: it is sent if it was requested before cancel. Requests after
	// cancel are ignored, even invalid ones.
	for name, row := range map[string]struct {
		calls func(cpeer.Producers)
		want  int
	}{
		"a requested batch in hand is sent":                {func(p cpeer.Producers) { p.Request(1); p.Cancel() }, 1},
		"a batch in hand that was not requested is not":    {func(p cpeer.Producers) { p.Cancel(); p.Request(1) }, 0},
		"a wrong request after cancel does not hold it up": {func(p cpeer.Producers) { p.Request(1); p.Cancel(); p.Request(-1) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			settles(t)
			for range rounds {
				next, asked := countedSource(t)
				synctest.Test(t, func(t *testing.T) {
					r, err := readerFunc(numberedSchema, device.CPU, next, nil)
					require.NoError(t, err)
					defer r.Release()
					c := cpeer.NewConsumer(cpeer.Behaviour{})
					defer c.Free()
					_, err = cdevice.ExportAsync(background, r, publicHandler(c))
					require.NoError(t, err)
					synctest.Wait() // until the producer sleeps
					assert.EqualValues(t, 1, asked.Load())
					row.calls(c.Producer())
					require.NoError(t, c.WaitReleased())
					require.Equal(t, events(row.want, cpeer.Release), c.Events())
					assert.Zero(t, c.Overlaps())
					for i := range c.Tasks() {
						assert.Zero(t, cpeer.Extract(&c.Tasks()[i], nil))
					}
				})
			}
		})
	}
	// More was requested than the source has given, and it gives nothing: release comes all the same.
	t.Run("the source is asked for nothing", func(t *testing.T) {
		settles(t)
		next, asked := countedSource(t)
		third, open := make(chan struct{}), make(chan struct{})
		r, err := readerFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) {
			b, err := next()
			if asked.Load() == 3 {
				close(third)
				<-open
			}
			return b, err
		}, nil)
		require.NoError(t, err)
		defer r.Release()
		c := exported(t, background, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 1000, DropAtOnce: true}, r)
		<-third
		c.Producer().Cancel()
		require.NoError(t, c.WaitReleased())
		close(open)
		assert.Equal(t, events(2, cpeer.Release), c.Events())
		within.Eventually(t, "the end of the source", func() bool { return cdevice.ReadStats().AsyncProducers == 0 })
		assert.EqualValues(t, 3, asked.Load())
	})
	// Once ctx is done, no batch is sent, however many were requested.
	t.Run("after the end of the context", func(t *testing.T) {
		settles(t)
		ctx, cancel := context.WithCancel(background)
		defer cancel()
		c := exported(t, ctx, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 2}, endless(t, twoColumns(t)))
		require.NoError(t, c.WaitTasks(2))
		cancel()
		c.Producer().Request(1 << 40)
		require.NoError(t, c.WaitReleased())
		assert.Equal(t, events(2, cpeer.OnError, cpeer.Release), c.Events())
	})
}

// TestAsyncStreamCancel is about our consumer after its cancel.
func TestAsyncStreamCancel(t *testing.T) {
	// A producer may deliver the requested batches, or not, or fail: after Close, and after the end
	// of ctx.
	t.Run("all that comes is taken", func(t *testing.T) {
		for name, row := range map[string]struct {
			do      func(p *peer)
			dropped int64
		}{
			"release":           {func(p *peer) {}, 0},
			"all tasks":         {func(p *peer) { p.send(4) }, 4},
			"some tasks":        {func(p *peer) { p.send(2) }, 2},
			"tasks and the end": {func(p *peer) { p.send(4); assert.Zero(p.t, p.End()) }, 4},
			"on_error":          {func(p *peer) { p.Error(errno.Code(syscall.EIO), "late", nil) }, 0},
			"tasks, on_error":   {func(p *peer) { p.send(3); p.Error(errno.Code(syscall.EIO), "late", nil) }, 3},
		} {
			for _, by := range []string{"Close", "context"} {
				t.Run(name+" after "+by, func(t *testing.T) {
					ctx, cancel := context.WithCancel(background)
					defer cancel()
					p := begun(t, ctx, 4, 0)
					closed := make(chan struct{})
					if by == "context" {
						cancel()
						close(closed)
					} else {
						go func() { p.s.close(); close(closed) }()
					}
					require.NoError(t, p.WaitCancelled())
					row.do(p)
					p.Release()
					<-closed
					n, err := p.all()
					assert.Zero(t, n)
					if by == "context" {
						assert.ErrorIs(t, err, context.Canceled, "and not what came later")
					} else {
						assert.ErrorIs(t, err, cdevice.ErrReleased)
					}
					assert.Equal(t, row.dropped, p.Calls().Dropped)
					assert.EqualValues(t, 1, p.Calls().Cancels)
				})
			}
		}
	})
	// Our producer and our consumer: the tasks that come after cancel are dropped, and nothing is lost.
	t.Run("while the producer has a batch in hand", func(t *testing.T) {
		settles(t)
		for range rounds {
			sent := 0
			batch := numbered(t, 1)[0]
			r, err := readerFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) {
				if sent++; sent > 100 {
					return nil, io.EOF
				}
				batch.Retain()
				return batch, nil
			}, nil)
			require.NoError(t, err)
			s := connect(t, background, r, 2)
			r.Release()
			for range s.All() {
				break
			}
			s.close()
			assert.Zero(t, cdevice.ReadStats().AsyncStreams)
		}
	})
	t.Run("nothing is requested", func(t *testing.T) {
		for name, code := range map[string]int{"a task": 0, "a task that fails": 5} {
			t.Run(name, func(t *testing.T) {
				p := begun(t, soon(t), 1, 0)
				task := p.task(code)
				task.Wait()
				require.Zero(t, p.Send(task, nil))
				taken := make(chan error)
				go func() {
					n, err := p.all()
					assert.Zero(t, n, "what comes after Close is dropped")
					taken <- err
				}()
				require.NoError(t, p.WaitWaiting()) // in extract_data
				go p.s.close()
				require.NoError(t, p.WaitCancelled())
				p.Let()
				assert.ErrorIs(t, <-taken, cdevice.ErrReleased)
				assert.EqualValues(t, 1, p.Calls().Requests)
				p.Release()
			})
		}
	})
}
