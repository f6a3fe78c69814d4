package cdevice_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
)

// errSource is the error of a source that fails.
var errSource = errors.New("the source is on fire")

// canceled is a context that is done.
var canceled = func() context.Context {
	ctx, cancel := context.WithCancel(background)
	cancel()
	return ctx
}()

// yielding is an iterator over batches, and then, unless it is nil, an error.
func yielding(err error, batches ...*cdevice.RecordBatch) iter.Seq2[*cdevice.RecordBatch, error] {
	return func(yield func(*cdevice.RecordBatch, error) bool) {
		for _, b := range batches {
			if !yield(b, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

// nextOf is a function over the same, for NewRecordReaderFunc.
func nextOf(err error, batches ...*cdevice.RecordBatch) func() (*cdevice.RecordBatch, error) {
	at := 0
	return func() (*cdevice.RecordBatch, error) {
		if at == len(batches) {
			if err != nil {
				return nil, err
			}
			return nil, io.EOF
		}
		at++
		batches[at-1].Retain()
		return batches[at-1], nil
	}
}

// yields is a reader of an iterator over CPU batches.
func yields(t *testing.T, s *arrow.Schema, seq iter.Seq2[*cdevice.RecordBatch, error]) *cdevice.RecordReader {
	t.Helper()
	r, err := cdevice.NewRecordReader(s, device.CPU, seq)
	require.NoError(t, err)
	t.Cleanup(r.Release)
	return r
}

// asked is a reader of a function that returns batches, and then err or the end.
func asked(t testing.TB, err error, batches ...*cdevice.RecordBatch) *cdevice.RecordReader {
	t.Helper()
	r, e := readerFunc(numberedSchema, device.CPU, nextOf(err, batches...), nil)
	require.NoError(t, e)
	return r
}

// counting is a reader of numbered batches from first to last, which nothing else holds.
func counting(t testing.TB, first, last int) *cdevice.RecordReader {
	t.Helper()
	next := func() (*cdevice.RecordBatch, error) {
		if first > last {
			return nil, io.EOF
		}
		first++
		return numberedBatch(t, first-1), nil
	}
	r, err := readerFunc(numberedSchema, device.CPU, next, nil)
	require.NoError(t, err)
	return r
}

// iterated is a reader of an iterator over batches, and then, unless it is nil, err.
func iterated(t testing.TB, err error, batches ...*cdevice.RecordBatch) *cdevice.RecordReader {
	t.Helper()
	r, e := cdevice.NewRecordReader(numberedSchema, device.CPU, yielding(err, batches...))
	require.NoError(t, e)
	return r
}

// repeated is a reader of the same batch, n times; it is released at the end.
func repeated(t *testing.T, rec arrow.RecordBatch, n int) *cdevice.RecordReader {
	t.Helper()
	return yields(t, rec.Schema(), yielding(nil, times(n, wrap(t, rec))...))
}

// times returns a batch n times.
func times(n int, b *cdevice.RecordBatch) []*cdevice.RecordBatch {
	return slices.Repeat([]*cdevice.RecordBatch{b}, n)
}

// unending is a reader that never ends; stop, unless it is nil, is its stop function.
func unending(t testing.TB, stop func()) *cdevice.RecordReader {
	t.Helper()
	next, _ := countedSource(t)
	r, err := readerFunc(numberedSchema, device.CPU, next, stop)
	require.NoError(t, err)
	return r
}

// failing is an arrow-go reader without batches and with an error.
type failing struct {
	panicking
	err error
}

func (failing) Next() bool { return false }

func (f failing) Err() error { return f.err }

// layers are readers that end in one of a script, one way and another.
func layers(t *testing.T) map[string]func(*script) *cdevice.RecordReader {
	imported := importing(t)
	copied := func(src *cdevice.RecordReader) *cdevice.RecordReader {
		return made(t, src)(src.CopyTo(background, device.CPUDevice()))
	}
	return map[string]func(*script) *cdevice.RecordReader{
		"imported":      imported,
		"ahead, mapped": func(s *script) *cdevice.RecordReader { return imported(s).Prefetch(2).Map(same) },
		"copied":        func(s *script) *cdevice.RecordReader { return copied(imported(s)) },
		"ahead, copied": func(s *script) *cdevice.RecordReader { return copied(imported(s).Prefetch(2)) },
		"copied ahead":  func(s *script) *cdevice.RecordReader { return copied(imported(s)).Prefetch(2).Map(same) },
		"through an All": func(s *script) *cdevice.RecordReader {
			return iterating(t, imported(s))
		},
		"through a HostReader": func(s *script) *cdevice.RecordReader {
			src := imported(s).Prefetch(1)
			h := src.HostReader(background, nil)
			src.Release()
			defer h.Release()
			r, err := cdevice.WrapRecordReader(h, device.CPUDevice())
			require.NoError(t, err)
			return r
		},
	}
}

// prefetching makes a reader of a script, which prefetches n batches.
func prefetching(t *testing.T, n int) func(*script) *cdevice.RecordReader {
	return func(s *script) *cdevice.RecordReader { return importing(t)(s).Prefetch(n) }
}

// iterating is a reader of an iterator that owns a reader.
func iterating(t *testing.T, src *cdevice.RecordReader) *cdevice.RecordReader {
	r, err := cdevice.NewRecordReader(src.Schema(), src.DeviceType(), func(yield func(*cdevice.RecordBatch, error) bool) {
		defer src.Release()
		src.All()(yield)
	})
	require.NoError(t, err)
	return r
}

// blocked is a reader whose source does not return from its second get_next until answer is called.
func blocked(t *testing.T, layer func(*script) *cdevice.RecordReader) *blockedReader {
	t.Helper()
	b := &blockedReader{script: newScript(t, numbered(t, 9)...), called: make(chan struct{})}
	answer := make(chan struct{})
	var once sync.Once
	b.answer = func() { once.Do(func() { close(answer) }) }
	t.Cleanup(b.answer)
	first := b.getNext
	b.getNext = func(call int, out *abi.ArrowDeviceArray) int {
		if call == 1 {
			close(b.called)
			<-answer
		}
		return first(call, out)
	}
	b.r = layer(b.script)
	return b
}

// blockedReader is a reader of a producer whose second get_next waits for answer.
type blockedReader struct {
	*script
	r      *cdevice.RecordReader
	called chan struct{} // closed by the second get_next
	answer func()
}

// same is a function for Map that passes its batch on.
func same(b *cdevice.RecordBatch) (*cdevice.RecordBatch, error) { return b, nil }

// batchFunc is a function for Map.
type batchFunc = func(*cdevice.RecordBatch) (*cdevice.RecordBatch, error)

// readerOf reads an array.RecordReader as arrio does.
type readerOf struct{ array.RecordReader }

func (r readerOf) Read() (arrow.RecordBatch, error) {
	if r.Next() {
		return r.RecordBatch(), nil
	}
	if r.Err() != nil {
		return nil, r.Err()
	}
	return nil, io.EOF
}

// inPlace are batches over the parts of b, which they do not own.
func inPlace(t *testing.T, b []byte, n int) array.RecordReader {
	t.Helper()
	var all []arrow.RecordBatch
	for i := range n {
		part := memory.NewBufferBytes(b[i*len(b)/n : (i+1)*len(b)/n])
		data := array.NewData(arrow.PrimitiveTypes.Int64, part.Len()/8, []*memory.Buffer{nil, part}, nil, 0, 0)
		column := array.NewInt64Data(data)
		all = append(all, array.NewRecordBatch(numberedSchema, []arrow.Array{column}, int64(column.Len())))
		data.Release()
		column.Release()
	}
	rdr, err := array.NewRecordReader(numberedSchema, all)
	require.NoError(t, err)
	for _, rec := range all {
		rec.Release()
	}
	return rdr
}

// importing makes a reader of a script.
func importing(t *testing.T, opts ...cdevice.ImportOption) func(*script) *cdevice.RecordReader {
	return func(s *script) *cdevice.RecordReader {
		r, err := cdevice.ImportRecordReader(s.stream, opts...)
		require.NoError(t, err)
		return r
	}
}

// panicking is a reader whose methods panic: it has none of its own.
type panicking struct{ array.RecordReader }

func (panicking) Schema() *arrow.Schema { return numberedSchema }

func (panicking) Next() bool { panic("in a reader") }

func (panicking) Retain() {}

func (panicking) Release() {}

// countedSource is a source of numbered batches, without end; asked counts its calls.
func countedSource(t testing.TB) (next func() (*cdevice.RecordBatch, error), asked *atomic.Int64) {
	batch := numbered(t, 1)[0]
	asked = new(atomic.Int64)
	return func() (*cdevice.RecordBatch, error) {
		asked.Add(1)
		batch.Retain()
		return batch, nil
	}, asked
}

// waiting is a device that has no memory to give until its caller gives up.
type waiting struct {
	device.Device
	asked chan struct{}
}

func (waiting) ID() device.ID { return extDev }

func (d waiting) Allocate(ctx context.Context, _ int64, _ device.Stream) (device.Memory, error) {
	close(d.asked)
	<-ctx.Done()
	return nil, ctx.Err()
}

// readerFunc is NewRecordReaderFunc for a function that does not wait.
func readerFunc(s *arrow.Schema, dt device.Type, next func() (*cdevice.RecordBatch, error), stop func()) (*cdevice.RecordReader, error) {
	if next == nil {
		return cdevice.NewRecordReaderFunc(background, s, dt, nil, stop)
	}
	return cdevice.NewRecordReaderFunc(background, s, dt, func(context.Context) (*cdevice.RecordBatch, error) { return next() }, stop)
}
