package cdevice_test

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/errno"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Calls that a producer must not make, and the results of our callbacks for them. The stream ends
// with an error that names the field; the producer is not called again.
func TestAsyncStreamRefusesWhatIsWrong(t *testing.T) {
	huge := []byte{255, 255, 255, 127}
	null := uintptr(0)
	for name, row := range map[string]struct {
		do   func(p *peer) int
		text string
	}{
		"producer NULL":            {func(p *peer) int { return p.SchemaWithoutProducer(exportedSchema(p)) }, "ArrowAsyncDeviceStreamHandler.producer = NULL"},
		"request NULL":             {func(p *peer) int { p.Struct().Request = null; return p.begin() }, "ArrowAsyncProducer.request = NULL"},
		"cancel NULL":              {func(p *peer) int { p.Struct().Cancel = null; return p.begin() }, "ArrowAsyncProducer.cancel = NULL"},
		"device_type 0":            {func(p *peer) int { p.Struct().DeviceType = 0; return p.begin() }, "ArrowAsyncProducer.device_type = 0"},
		"device_type -1":           {func(p *peer) int { p.Struct().DeviceType = -1; return p.begin() }, "ArrowAsyncProducer.device_type = -1"},
		"schema NULL":              {func(p *peer) int { return p.Schema(nil) }, "ArrowAsyncDeviceStreamHandler.on_schema.ArrowSchema = NULL"},
		"schema released":          {func(p *peer) int { return p.Schema(new(abi.ArrowSchema)) }, "on_schema.ArrowSchema.release = NULL"},
		"schema malformed":         {func(p *peer) int { s := exportedSchema(p); s.Format = 0; return p.Schema(s) }, "on_schema.ArrowSchema.format = NULL"},
		"additional_metadata":      {func(p *peer) int { p.Struct().AdditionalMetadata = addressOf(&huge[0]); return p.begin() }, "ArrowAsyncProducer.additional_metadata.n = 2147483647"},
		"task before on_schema":    {func(p *peer) int { return p.Send(p.task(0), nil) }, "on_next_task = called, want on_schema before it"},
		"end before on_schema":     {func(p *peer) int { return p.End() }, "on_next_task = called, want on_schema before it"},
		"on_schema twice":          {func(p *peer) int { p.begin(); return p.begin() }, "on_schema = called, want the first call, once"},
		"more than requested":      {func(p *peer) int { p.begin(); p.send(2); return p.Send(p.task(0), nil) }, "no more tasks than were requested"},
		"task after the end":       {func(p *peer) int { p.begin(); p.End(); return p.Send(p.task(0), nil) }, "nothing after the end"},
		"end after the end":        {func(p *peer) int { p.begin(); p.End(); return p.End() }, "nothing after the end"},
		"extract_data NULL":        {func(p *peer) int { p.begin(); return p.SendBare() }, "ArrowAsyncTask.extract_data = NULL"},
		"metadata of a task":       {func(p *peer) int { p.begin(); return p.Send(p.task(0), huge) }, "on_next_task.metadata.n = 2147483647"},
		"task after a wrong one":   {func(p *peer) int { p.begin(); p.SendBare(); return p.Send(p.task(0), nil) }, "ArrowAsyncTask.extract_data = NULL"},
		"on_schema after on_error": {func(p *peer) int { p.Error(5, "x", nil); return p.begin() }, "errno 5): x"},
	} {
		t.Run(name, func(t *testing.T) {
			p := consumed(t, soon(t), 2)
			assert.Equal(t, errno.Code(syscall.EINVAL), row.do(p))
			requested := p.Calls().Requested
			_, err := p.all()
			assert.ErrorContains(t, err, row.text)
			p.Release()
			assert.Equal(t, requested, p.Calls().Requested)
			assert.Zero(t, p.Calls().Cancels)
		})
	}
}

// A task's array that is wrong ends the stream: the producer is cancelled, the array released.
func TestAsyncStreamRefusesWrongArrays(t *testing.T) {
	for name, row := range map[string]struct {
		make func(p *peer) cpeer.Task
		text string
	}{
		"released": {func(p *peer) cpeer.Task { task := p.task(0); task.NoArray(); return task }, "ArrowAsyncTask.extract_data = a released array"},
		"other device": {func(p *peer) cpeer.Task { task := p.task(0); task.OnDevice(2); return task },
			"ArrowAsyncTask.extract_data.ArrowDeviceArray.device_type = 2, want 1, the device type of the producer"},
		"malformed": {func(p *peer) cpeer.Task { return p.task(0) }, "ArrowAsyncTask.extract_data.ArrowDeviceArray.array.n_children = 1, want 2"},
	} {
		t.Run(name, func(t *testing.T) {
			releases := 0
			with := cdevice.WithReleaser(func(release func()) { releases++; release() })
			p := consumed(t, soon(t), 0, with)
			if name == "malformed" {
				p.schema = arrow.NewSchema([]arrow.Field{p.schema.Field(0), p.schema.Field(0)}, nil)
			}
			require.Zero(t, p.begin())
			require.Zero(t, p.Send(row.make(p), nil))
			p.send(1)
			n, err := p.all()
			assert.Zero(t, n)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
			assert.ErrorContains(t, err, row.text)
			within.Eventually(t, "what was ready is dropped", func() bool { return p.Calls().Dropped == 1 })
			assert.EqualValues(t, 1, p.Calls().Cancels)
			if name != "released" {
				assert.Equal(t, 1, releases, "what WithReleaser asks for holds for refused arrays, too")
			}
			p.Release()
		})
	}
}

func TestAsyncStreamTaskThatFails(t *testing.T) {
	for name, row := range map[string]struct {
		queue   int
		ready   int               // good tasks behind the failing one
		then    func(p *peer) int // the calls of the producer; returns how often it is cancelled
		message string
	}{
		"on_error follows": {1, 0, func(p *peer) int { p.Error(5, "the text", nil); p.Release(); return 0 }, "on_error: input/output error (errno 5): the text"},
		"on_error follows what was asked for before": {2, 0, func(p *peer) int {
			p.send(1)
			assert.EqualValues(t, 1, p.Calls().Dropped, "a task that arrives after the failure is dropped at once")
			p.Error(5, "the text", nil)
			p.Release()
			return 0
		}, "the text"},
		"on_error, with others ready":  {3, 2, func(p *peer) int { p.Error(5, "the text", nil); p.Release(); return 0 }, "the text"},
		"release only":                 {1, 0, func(p *peer) int { p.Release(); return 0 }, "ArrowAsyncTask.extract_data: errno 121"},
		"the end":                      {1, 0, func(p *peer) int { p.End(); p.Release(); return 0 }, "ArrowAsyncTask.extract_data"},
		"swallowed":                    {1, 0, func(p *peer) int { p.send(1); return 1 }, "ArrowAsyncTask.extract_data"},
		"swallowed, with others ready": {3, 2, func(p *peer) int { p.send(1); return 1 }, "ArrowAsyncTask.extract_data"},
	} {
		t.Run(name, func(t *testing.T) {
			p := begun(t, soon(t), row.queue, 0)
			require.Zero(t, p.Send(p.task(121), nil))
			p.send(row.ready)
			result := make(chan error, 1)
			go func() {
				n, err := p.all()
				assert.Zero(t, n)
				result <- err
			}()
			require.NoError(t, p.WaitRequested(int64(row.queue)+1), "one more: a producer that swallows errors goes on")
			cancels := row.then(p)
			err := <-result
			var async *cdevice.ProducerError
			require.ErrorAs(t, err, &async, fmt.Sprint(err))
			if async.Callback == "ArrowAsyncTask.extract_data" {
				assert.Equal(t, 121, async.Code)
			} else {
				assert.ErrorContains(t, err, row.message)
			}
			if cancels > 0 {
				require.NoError(t, p.WaitCancelled())
			}
			assert.EqualValues(t, cancels, p.Calls().Cancels)
		})
	}
}

// Rules of the specification that no other test is named after.

// TestAsyncStreamCalls is about the threads of a stream's calls.
func TestAsyncStreamCalls(t *testing.T) {
	// on_error and release must not call the producer: even if batches are ready, requested, or the stream is closed meanwhile.
	t.Run("none inside on_error and release", func(t *testing.T) {
		for ready := range 4 {
			for name, end := range map[string]func(p *peer){
				"on_error": func(p *peer) { p.Error(errno.Code(syscall.EIO), "x", nil) },
				"the end":  func(p *peer) { p.End() },
				"release":  func(*peer) {},
			} {
				t.Run(fmt.Sprint(name, " with ", ready), func(t *testing.T) {
					p := begun(t, soon(t), 3, ready)
					var closed sync.WaitGroup
					if ready == 2 {
						closed.Go(p.s.close)
						require.NoError(t, p.WaitCancelled())
					}
					end(p)
					p.Release()
					closed.Wait()
					_, _ = p.all()
					assert.EqualValues(t, 1, p.Calls().Requests, "nor later")
					assert.Zero(t, p.Calls().Forbidden)
				})
			}
		}
	})
	// A producer must not call on_next_task from several threads at once. One that does loses nothing.
	t.Run("tasks from many threads at once", func(t *testing.T) {
		const requested = 32
		for name, sent := range map[string]int{"as requested": requested, "more than requested": 2 * requested} {
			t.Run(name, func(t *testing.T) {
				for range 20 {
					p := begun(t, soon(t), requested, 0)
					for range sent {
						p.task(0)
					}
					taken := make(chan int)
					go func() {
						n, _ := p.all()
						taken <- n
					}()
					refused := p.SendAtOnce(p.tasks)
					p.End()
					p.Release()
					assert.Equal(t, sent-refused, <-taken)
					if sent == requested {
						assert.Zero(t, refused)
					}
					calls := p.Calls()
					assert.Zero(t, calls.Twice)
					assert.EqualValues(t, sent-refused, calls.Extracted)
					assert.EqualValues(t, refused, calls.Dropped)
					p.s.close() // so that the next one begins with nothing alive
				}
			})
		}
	})
	t.Run("one call at a time", func(t *testing.T) {
		p := consumed(t, soon(t), 0)
		p.InRequest(cpeer.InWait)
		begun := make(chan struct{})
		go func() {
			assert.Zero(t, p.begin())
			close(begun)
		}()
		require.NoError(t, p.WaitWaiting()) // in the first request
		go p.s.close()
		_, err := p.all() // until it is closed
		assert.ErrorIs(t, err, cdevice.ErrReleased)
		for range 1000 {
			runtime.Gosched()
		}
		p.InRequest(cpeer.InNothing)
		p.Let()
		<-begun
		require.NoError(t, p.WaitCancelled())
		assert.Zero(t, p.Calls().Overlaps)
	})
}
