package cdevice_test

import (
	"io"
	"strings"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// A program may wait for zeros in ReadStats before it unloads a producer's library: an object
// counts until its release callback has returned.

// counted returns a release callback that reads one of the counts while it runs, and
// checks at the end of the test that the callback ran once and was counted.
func counted(t *testing.T, of func(cdevice.Stats) int64) func() {
	t.Helper()
	before := of(cdevice.ReadStats())
	var during []int64
	t.Cleanup(func() {
		assert.Equal(t, []int64{before + 1}, during, "counted while it is released")
		assert.Equal(t, before, of(cdevice.ReadStats()), "and not afterwards")
	})
	return func() { during = append(during, of(cdevice.ReadStats())) }
}

// handlerOf is a handler of a program in Go that only wants to be released.
type handlerOf struct{ release func() }

func (h handlerOf) OnSchema(*abi.ArrowAsyncProducer, *abi.ArrowSchema) int { return 5 }
func (h handlerOf) OnNextTask(*abi.ArrowAsyncTask, uintptr) int            { return 5 }
func (h handlerOf) OnError(int, string, uintptr)                           {}
func (h handlerOf) Release()                                               { h.release() }

func TestStatsOfReaders(t *testing.T) {
	checkLeaks(t)
	readers := func() int64 { return cdevice.ReadStats().Readers }
	before := readers()
	r, err := readerFunc(numberedSchema, device.CPU, nextOf(nil), counted(t, func(s cdevice.Stats) int64 { return s.Readers }))
	require.NoError(t, err)
	assert.Equal(t, before+1, readers())
	r.Retain()
	r.Release()
	assert.Equal(t, before+1, readers())
	r.Release()
	assert.Equal(t, before, readers())

	b := blocked(t, prefetching(t, 1))
	require.True(t, b.r.Next())
	<-b.called
	b.r.Release()
	assert.Equal(t, before+1, readers(), "its goroutine asks the producer")
	b.answer()
	within.Eventually(t, "the end of the goroutine", func() bool { return readers() == before })
	assert.EqualValues(t, 1, b.releases.Load())

	a, err := cdevice.NewArrayReader(arrow.Field{Type: arrow.Null}, device.CPU, func(func(*cdevice.Array, error) bool) {})
	require.NoError(t, err)
	assert.Equal(t, before+1, readers())
	a.Release()
	assert.Equal(t, before, readers())
}

func TestGoroutinesAreCounted(t *testing.T) {
	settles(t)
	goroutines := func() int64 { return cdevice.ReadStats().Goroutines }
	before := goroutines()
	b := blocked(t, prefetching(t, 1))
	assert.Equal(t, before, goroutines(), "it begins with the first batch")
	require.True(t, b.r.Next())
	<-b.called
	assert.Equal(t, before+1, goroutines(), "the prefetcher")
	go func() { _ = b.r.Close(background) }()
	b.answer()
	closes(t, b.r)
	assert.Equal(t, before, goroutines())
	b.r.Release()

	iterator := iterated(t, nil, numbered(t, 2)...)
	require.True(t, iterator.Next())
	assert.Equal(t, before+1, goroutines(), "the iterator")
	iterator.Release()
	assert.Equal(t, before, goroutines())

	let := make(chan struct{})
	closing := unending(t, func() { <-let })
	expires(t, closing.Close)
	assert.Equal(t, before+1, goroutines(), "what calls stop")
	close(let)
	closes(t, closing)
	assert.Equal(t, before, goroutines())
	closing.Release()

	batch := wrap(t, twoColumns(t))
	r, err := readerFunc(batch.Schema(), device.CPU, nextOf(nil, batch, batch), nil)
	require.NoError(t, err)
	c := exported(t, background, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 1}, r)
	r.Release()
	require.NoError(t, c.WaitTasks(1))
	assert.Equal(t, before+2, goroutines(), "the producer, and what asks its reader")
	c.Producer().Cancel()
	require.NoError(t, c.WaitReleased())
	assert.Zero(t, cpeer.Extract(&c.Tasks()[0], nil))
	within.Eventually(t, "the end of both", func() bool { return goroutines() == before })
}

// When Release of an iterator, or Close, has returned, so has each goroutine of the reader.
func TestNoGoroutineIsCountedAfterItsReader(t *testing.T) {
	settles(t)
	before := cdevice.ReadStats().Goroutines
	batches := numbered(t, 2)
	for range 2000 {
		iterator := iterated(t, nil, batches...)
		require.True(t, iterator.Next())
		iterator.Release()
		require.Equal(t, before, cdevice.ReadStats().Goroutines)
		closed := asked(t, nil, batches...)
		require.NoError(t, closed.Close(background))
		require.Equal(t, before, cdevice.ReadStats().Goroutines)
		closed.Release()
	}
}

// TestStatsOfImports is about structs of producers, counted until their release returns.
func TestStatsOfImports(t *testing.T) {
	checkLeaks(t)
	t.Run("a stream", func(t *testing.T) {
		for name, row := range map[string]struct {
			ahead int
			opts  []cdevice.ImportOption
		}{
			"at once": {0, nil}, "ahead": {1, nil},
			"WithReleaser": {0, []cdevice.ImportOption{cdevice.WithReleaser(func(release func()) { release() })}},
		} {
			t.Run(name, func(t *testing.T) {
				release := counted(t, func(s cdevice.Stats) int64 { return s.ImportedStreams })
				settles(t)
				s := newScript(t)
				s.onRelease = release
				r, err := cdevice.ImportRecordReader(s.stream, row.opts...)
				require.NoError(t, err)
				assert.False(t, r.Prefetch(row.ahead).Next())
				r.Release()
				within.Eventually(t, "the release", func() bool { return s.releases.Load() == 1 })
			})
		}
	})
	t.Run("a stream that is not imported", func(t *testing.T) {
		s := newScript(t)
		s.onRelease = counted(t, func(s cdevice.Stats) int64 { return s.ImportedStreams })
		s.getSchema = func(*abi.ArrowSchema) int { return 5 }
		_, err := cdevice.ImportRecordReader(s.stream)
		require.Error(t, err)
	})
	t.Run("an array", func(t *testing.T) {
		b := ownedBatch(t, counted(t, func(s cdevice.Stats) int64 { return s.ImportedArrays }))
		out, schema := garbageArray(), garbageSchema()
		require.NoError(t, cdevice.ExportRecordBatch(b, out, schema))
		b.Release()
		back, err := cdevice.ImportRecordBatch(out, schema)
		require.NoError(t, err)
		back.Release()
	})
}

// TestStatsOfExports tests that our structs count until their memory is released.
func TestStatsOfExports(t *testing.T) {
	checkLeaks(t)
	t.Run("an array", func(t *testing.T) {
		s, err := device.CPUDevice().NewStream()
		require.NoError(t, err)
		own := new(namedEvent)
		for _, name := range []string{"without an event", "with one of its own"} {
			t.Run(name, func(t *testing.T) {
				b := ownedBatch(t, counted(t, func(s cdevice.Stats) int64 { return s.ExportedArrays }))
				out := garbageArray()
				if name == "with one of its own" {
					b = made(t, b)(b.WithEvent(streamWithEvents{s, own}))
				}
				require.NoError(t, cdevice.ExportRecordBatch(b, out, nil))
				b.Release()
				cdevice.ReleaseStruct(out)
			})
		}
		assert.Equal(t, 1, own.closes)
	})
	t.Run("a stream", func(t *testing.T) {
		stop := counted(t, func(s cdevice.Stats) int64 { return s.ExportedStreams })
		arrays := cdevice.ReadStats().ExportedArrays
		r, err := readerFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) { return nil, io.EOF }, func() {
			stop()
			assert.Equal(t, arrays, cdevice.ReadStats().ExportedArrays, "while the stream is released")
		})
		require.NoError(t, err)
		out := new(cdevice.CArrowDeviceArrayStream)
		require.NoError(t, cdevice.ExportRecordReader(r, out))
		r.Release()
		cdevice.ReleaseStruct(out)
	})
	t.Run("an asynchronous task", func(t *testing.T) {
		for name, of := range map[string]func(cdevice.Stats) int64{
			"task":     func(s cdevice.Stats) int64 { return s.AsyncTasks },
			"producer": func(s cdevice.Stats) int64 { return s.AsyncProducers },
		} {
			t.Run(name, func(t *testing.T) {
				release := counted(t, of)
				settles(t)
				b := ownedBatch(t, release)
				given := false
				r, err := readerFunc(b.Schema(), device.CPU, func() (*cdevice.RecordBatch, error) {
					if given {
						return nil, io.EOF
					}
					given = true
					return b, nil
				}, nil)
				require.NoError(t, err)
				c := exported(t, background, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 1}, r)
				r.Release()
				require.NoError(t, c.WaitReleased())
				assert.Zero(t, cpeer.Extract(&c.Tasks()[0], nil))
			})
		}
	})
	t.Run("an asynchronous producer", func(t *testing.T) {
		release := counted(t, func(s cdevice.Stats) int64 { return s.AsyncProducers })
		settles(t)
		released := make(chan struct{})
		handler := new(cdevice.CArrowAsyncDeviceStreamHandler)
		bridge.ExportHandler(handlerOf{func() { release(); close(released) }}, abi.As[abi.ArrowAsyncDeviceStreamHandler](handler))
		r := repeated(t, twoColumns(t), 1)
		require.NoError(t, second(cdevice.ExportAsync(background, r, handler)))
		<-released
	})
}

// liveKinds returns the kinds of the listed objects, and the maker of the first of them.
func liveKinds() (kinds []string, maker string) {
	for i, o := range cdevice.LiveObjects() {
		kinds = append(kinds, o.Kind)
		if i == 0 {
			maker = o.Stack[0].Function
		}
	}
	return kinds, maker
}

// While objects are traced, each exported schema is listed until its release. It is not one of
// the exported arrays.
func TestExportedSchemasAreTraced(t *testing.T) {
	checkLeaks(t)
	defer cdevice.TraceObjects(cdevice.TraceObjects(true))
	field := arrow.Field{Name: "x", Type: arrow.StructOf(arrow.Field{Name: "y", Type: arrow.PrimitiveTypes.Int64})}
	schema := arrow.NewSchema([]arrow.Field{field}, nil)
	for name, export := range map[string]func(*cdata.CArrowSchema) error{
		"ExportSchema": func(out *cdata.CArrowSchema) error { return cdevice.ExportSchema(schema, out) },
		"ExportField":  func(out *cdata.CArrowSchema) error { return cdevice.ExportField(field, out) },
		"ExportRecordBatch": func(out *cdata.CArrowSchema) error {
			b, err := cdevice.NewRecordBatch(device.CPUDevice(), arrow.NewSchema(nil, nil), 0, nil, cdevice.Lifetime{})
			require.NoError(t, err)
			defer b.Release()
			arr := new(cdevice.CArrowDeviceArray)
			defer cdevice.ReleaseStruct(arr)
			return cdevice.ExportRecordBatch(b, arr, out)
		},
		"GetSchema": func(out *cdata.CArrowSchema) error {
			r, err := cdevice.NewRecordReader(schema, device.CPU, func(func(*cdevice.RecordBatch, error) bool) {})
			require.NoError(t, err)
			stream := new(cdevice.CArrowDeviceArrayStream)
			require.NoError(t, cdevice.ExportRecordReader(r, stream))
			r.Release()
			defer cdevice.ReleaseStruct(stream)
			require.Zero(t, bridge.CallGetSchema(abi.As[abi.ArrowDeviceArrayStream](stream), (*abi.ArrowSchema)(unsafe.Pointer(out))))
			return nil
		},
	} {
		before := cdevice.ReadStats()
		out := garbageSchema()
		require.NoError(t, export(out), name)
		kinds, maker := liveKinds()
		assert.Equal(t, []string{"exported ArrowSchema"}, kinds, name)
		assert.True(t, strings.Contains(maker, "/cdevice."), "%s: %s", name, maker)
		after := cdevice.ReadStats()
		assert.Equal(t, before.ExportedBlocks+1, after.ExportedBlocks)
		assert.Equal(t, before.ExportedArrays, after.ExportedArrays)
		cdevice.ReleaseStruct(out)
		assert.Equal(t, before, cdevice.ReadStats(), name)
		assert.Empty(t, cdevice.LiveObjects(), name)
	}

	cdevice.TraceObjects(false)
	out := garbageSchema()
	require.NoError(t, cdevice.ExportSchema(schema, out))
	assert.Empty(t, cdevice.LiveObjects())
	cdevice.ReleaseStruct(out)
}

func TestTextOfStats(t *testing.T) {
	assert.Equal(t, "nothing alive", cdevice.Stats{}.String())
	s := cdevice.Stats{Batches: 2, DeviceCopies: 1}
	before := cdevice.TraceObjects(false)
	defer cdevice.TraceObjects(before)
	assert.Equal(t, "Batches:2 DeviceCopies:1 (tracing is off: set CDEVICE_TRACE=1 or call TraceObjects, and LiveObjects lists them)", s.String())
	cdevice.TraceObjects(true)
	assert.Equal(t, "Batches:2 DeviceCopies:1", s.String())
}

func TestBatchesAreCounted(t *testing.T) {
	before := cdevice.ReadStats().Batches
	b, err := cdevice.WrapRecordBatch(twoColumns(t), device.CPUDevice())
	require.NoError(t, err)
	column := b.Column(0)
	assert.Equal(t, before+2, cdevice.ReadStats().Batches)
	b.Release()
	column.Release()
	assert.Equal(t, before, cdevice.ReadStats().Batches)
}
