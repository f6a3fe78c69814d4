package cdevice_test

import (
	"context"
	"iter"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/schema"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// importAsync fills the handler. The stream is closed by the caller.
func importAsync(t *testing.T, ctx context.Context, h *cdevice.CArrowAsyncDeviceStreamHandler, queueSize int, opts ...cdevice.ImportOption) *asyncStream {
	t.Helper()
	s, err := cdevice.ImportAsync(ctx, h, queueSize, opts...)
	require.NoError(t, err)
	return &asyncStream{AsyncStream: s, t: t}
}

// asyncStream is a stream of ours and its reader, which is there once it was waited for.
type asyncStream struct {
	*cdevice.AsyncStream
	t        *testing.T
	released sync.Once

	mu sync.Mutex
	r  *cdevice.RecordReader
}

// reader waits for the reader, which stays the stream's.
func (s *asyncStream) reader(ctx context.Context) (*cdevice.RecordReader, error) {
	r, err := s.Reader(ctx)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.r == nil {
		s.r = r
	} else {
		r.Release()
	}
	return s.r, nil
}

// All yields the items of the reader, or the error if there is none.
func (s *asyncStream) All() iter.Seq2[*cdevice.RecordBatch, error] {
	r, err := s.reader(background)
	if err != nil {
		return func(yield func(*cdevice.RecordBatch, error) bool) { yield(nil, err) }
	}
	return r.All()
}

// schema waits for the schema.
func (s *asyncStream) schema(ctx context.Context) (*arrow.Schema, error) {
	r, err := s.reader(ctx)
	if err != nil {
		return nil, err
	}
	return r.Schema(), nil
}

// close ends the stream, waits for its producer, and releases the reader.
func (s *asyncStream) close() {
	assert.NoError(s.t, s.Close(background))
	s.mu.Lock()
	r := s.r
	s.mu.Unlock()
	if r != nil {
		s.released.Do(r.Release)
	}
}

// asyncExport is a stream of our producer, and its consumer in C.
type asyncExport struct {
	cpeer.Consumer
	*cdevice.AsyncExport
}

// exported starts our producer with a consumer in C. When the test ends, the handler was
// released, no callback came while another one was running, and all tasks are gone.
func exported(t *testing.T, ctx context.Context, b cpeer.Behaviour, r *cdevice.RecordReader) asyncExport {
	t.Helper()
	c := cpeer.NewConsumer(b)
	t.Cleanup(func() {
		if assert.NoError(t, c.WaitReleased()) {
			assert.Zero(t, c.Overlaps(), "callbacks are serialised")
			assert.Zero(t, c.Reentrant(), "request and cancel call no handler")
			assert.False(t, c.MetadataChanged(), "the metadata lives as long as the producer")
			for i := range c.Tasks() {
				cpeer.Extract(&c.Tasks()[i], nil)
			}
			c.Free()
		}
	})
	e, err := cdevice.ExportAsync(ctx, r, publicHandler(c))
	require.NoError(t, err)
	return asyncExport{c, e}
}

// publicHandler is the handler of a consumer in C.
func publicHandler(c cpeer.Consumer) *cdevice.CArrowAsyncDeviceStreamHandler {
	return abi.As[cdevice.CArrowAsyncDeviceStreamHandler](c.Handler())
}

// consumed is a stream of ours and its producer in C. When the test ends, the handler is
// released, each task was extracted once, and the producer was not called when it must not be.
func consumed(t *testing.T, ctx context.Context, queueSize int, opts ...cdevice.ImportOption) *peer {
	t.Helper()
	settles(t)
	p := &peer{t: t, handler: &cdevice.CArrowAsyncDeviceStreamHandler{OnSchema: 0xdead, Producer: 0xdead}}
	tree, s := oneInt64()
	p.schema = s
	p.s = importAsync(t, ctx, p.handler, queueSize, opts...)
	p.Producer = cpeer.NewProducer(abi.As[abi.ArrowAsyncDeviceStreamHandler](p.handler), tree)
	t.Cleanup(func() {
		if p.handler.Release != 0 {
			p.Release()
		}
		p.s.close()
		calls := p.Calls()
		assert.Zero(t, calls.Late, "request after cancel, or a call after release")
		assert.Zero(t, calls.Overlaps, "calls are made one at a time")
		assert.Zero(t, calls.Forbidden, "calls from inside on_error or release")
		assert.LessOrEqual(t, calls.Cancels, int64(1))
		assert.Zero(t, calls.Arrays, "arrays that are not released")
		for i, task := range p.tasks {
			assert.Equal(t, 1, task.Extracted(), "task %d is extracted once", i)
			task.Free()
		}
		p.Free()
		tree.Free()
	})
	return p
}

// oneInt64 is the tree of a batch of two rows, and its schema.
func oneInt64() (cpeer.Tree, *arrow.Schema) {
	tree := cpeer.NewTree(cpeer.Node{Length: 2, Buffers: []uintptr{0}, Children: []cpeer.Node{{Length: 2, Buffers: []uintptr{0, bridge.Zeros}}}})
	return tree, arrow.NewSchema([]arrow.Field{{Name: "c", Type: arrow.PrimitiveTypes.Int64}}, nil)
}

// begun is consumed, with a producer that has sent the schema and so many good tasks.
func begun(t *testing.T, ctx context.Context, queueSize, tasks int) *peer {
	t.Helper()
	p := consumed(t, ctx, queueSize)
	require.Zero(t, p.begin())
	p.send(tasks)
	return p
}

// peer has the producer and its resources.
type peer struct {
	cpeer.Producer
	t       *testing.T
	s       *asyncStream
	handler *cdevice.CArrowAsyncDeviceStreamHandler
	schema  *arrow.Schema
	tasks   []cpeer.Task
}

func exportedSchema(p *peer) *abi.ArrowSchema {
	out := new(abi.ArrowSchema)
	require.NoError(p.t, schema.ExportSchema(p.schema, out))
	return out
}

// begin sends the schema.
func (p *peer) begin() int {
	out := exportedSchema(p)
	code := p.Schema(out)
	assert.Zero(p.t, out.Release, "the schema is taken, whatever on_schema returns")
	return code
}

// task makes a task that fails with the code, unless it is 0.
func (p *peer) task(code int) cpeer.Task {
	p.tasks = append(p.tasks, p.NewTask(code))
	return p.tasks[len(p.tasks)-1]
}

// send sends n good tasks.
func (p *peer) send(n int) {
	p.t.Helper()
	for range n {
		require.Zero(p.t, p.Send(p.task(0), nil))
	}
}

// all takes batches until the stream ends, and returns how many, and the error.
func (p *peer) all() (n int, last error) {
	for batch, err := range p.s.All() {
		if err != nil {
			last = err
			continue
		}
		assert.EqualValues(p.t, 2, batch.NumRows())
		n++
	}
	return n, last
}

// take takes n batches.
func (p *peer) take(n int) {
	p.t.Helper()
	got := 0
	for _, err := range p.s.All() {
		require.NoError(p.t, err)
		if got++; got == n {
			return
		}
	}
	p.t.Fatalf("the stream ended after %d batches", got)
}

// events returns the calls of a stream of n tasks, including its end.
func events(tasks int, end ...cpeer.Event) []cpeer.Event {
	all := []cpeer.Event{cpeer.OnSchema}
	for range tasks {
		all = append(all, cpeer.OnNextTask)
	}
	return append(all, end...)
}

// connect starts a stream from r; it is closed when the test ends.
func connect(t *testing.T, ctx context.Context, r *cdevice.RecordReader, queueSize int, opts ...cdevice.ImportOption) *asyncStream {
	t.Helper()
	handler := new(cdevice.CArrowAsyncDeviceStreamHandler)
	s := importAsync(t, ctx, handler, queueSize, opts...)
	t.Cleanup(s.close)
	_, err := cdevice.ExportAsync(background, r, handler)
	require.NoError(t, err)
	return s
}
