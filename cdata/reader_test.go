//go:build cgo

package cdata_test

import (
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/arrio"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdata"
	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/internal/errno"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
)

// imported is the reader of a stream, released at the end of the test.
func imported(t *testing.T, s *cdata.CArrowArrayStream) array.RecordReader {
	t.Helper()
	r, err := cdata.ImportCRecordReader(s, nil)
	require.NoError(t, err)
	rdr := r.(array.RecordReader)
	t.Cleanup(rdr.Release)
	return rdr
}

func TestReadAndNextReturnTheSame(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	want := []arrow.RecordBatch{numbers(t, 1), numbers(t, 2, 3), numbers(t)}
	r := imported(t, exported(newSource(t, want...)))
	assert.True(t, r.Schema().Equal(want[0].Schema()))
	require.True(t, r.Next())
	assert.True(t, array.RecordEqual(want[0], r.RecordBatch()))
	assert.Same(t, r.Schema(), r.RecordBatch().Schema())
	for _, w := range want[1:] {
		got, err := r.(arrio.Reader).Read()
		require.NoError(t, err)
		assert.True(t, array.RecordEqual(w, got))
		assert.Equal(t, got, r.RecordBatch())
	}
	for range 2 {
		_, err := r.(arrio.Reader).Read()
		assert.True(t, err == io.EOF, "not an error that wraps it")
		assert.False(t, r.Next())
		assert.NoError(t, r.Err(), "io.EOF is no error")
		assert.Nil(t, r.RecordBatch())
	}
}

// A record batch is the reader's until the next one, and longer if it is retained; a stream may be released before
// its end, and before its batches.
func TestBatchesOutliveTheReaderIfTheyAreRetained(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	p := cpeer.NewStream(3, -1, 0, "")
	defer p.Free()
	s := new(cdata.CArrowArrayStream)
	p.Export(streamMirror(s))
	r, err := cdata.ImportCRecordReader(s, nil)
	require.NoError(t, err)
	first, err := r.Read()
	require.NoError(t, err)
	first.Retain()
	_, err = r.Read()
	require.NoError(t, err)
	assert.Equal(t, 2, p.Live())
	_, err = r.Read()
	require.NoError(t, err)
	assert.Equal(t, 2, p.Live(), "the second batch ended with the third")
	r.(array.RecordReader).Release()
	assert.Equal(t, 1, p.Released())
	assert.Equal(t, []int64{0}, valuesOf(first))
	first.Release()
	assert.Zero(t, p.Live())
}

// arrow-go's comment says that the records of a reader must be released, which releases them once too often.
func TestBatchesOfReadMayBeReleased(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	p := cpeer.NewStream(3, -1, 0, "")
	defer p.Free()
	s := new(cdata.CArrowArrayStream)
	p.Export(streamMirror(s))
	r := imported(t, s)
	for i := range int64(3) {
		rec, err := r.(arrio.Reader).Read()
		require.NoError(t, err)
		assert.Equal(t, []int64{i}, valuesOf(rec))
		rec.Release()
		assert.Zero(t, p.Live(), "a release is early, as with arrow-go")
		rec.Release()
	}
	_, err := r.(arrio.Reader).Read()
	assert.Equal(t, io.EOF, err)
}

func TestReleasesTooManyDoNothing(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	releaseTooOften(t)
}

func releaseTooOften(t *testing.T) {
	src := newSource(t, numbers(t, 1))
	r, err := cdata.ImportCRecordReader(exported(src), nil)
	require.NoError(t, err)
	r.(array.RecordReader).Release()
	r.(array.RecordReader).Release()
	assert.Equal(t, src.retains+1, src.releases, "once: a reference of the exported stream, and the test's own")
	_, err = r.Read()
	assert.Error(t, err)

	a, s := new(cdata.CArrowArray), new(cdata.CArrowSchema)
	cdata.ExportArrowRecordBatch(numbers(t, 1), a, s)
	rec, err := cdata.ImportCRecordBatch(a, s)
	require.NoError(t, err)
	rec.Release()
	rec.Release()
	assert.Empty(t, rec.Columns(), "as arrow-go's")
}

// While tracing is on, a Release too many is reported, with the stack of the call.
func TestReleasesTooManyAreReported(t *testing.T) {
	if os.Getenv("CDATA_CHILD") != "" {
		releaseTooOften(t)
		return
	}
	for trace, want := range map[string]int{"1": 1, "0": 0} {
		child := emulated.Command(os.Args[0], "-test.run=^TestReleasesTooManyAreReported$")
		child.Env = append(os.Environ(), "CDATA_CHILD=1", "CDEVICE_TRACE="+trace)
		out, err := child.CombinedOutput()
		require.NoError(t, err, "%s", out)
		for _, text := range []string{"cdata: record batch: Release of an object without references", "cdata: reader: Release of an object without references"} {
			assert.Equal(t, want, strings.Count(string(out), text), "%s", out)
		}
		if want == 1 {
			assert.Contains(t, string(out), "cdata_test.releaseTooOften")
		}
	}
}

// A reader that is dropped releases its stream; one that is in use does not, even if no variable has it any more.
func TestDroppedReadersAreCollected(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for name, read := range map[string]bool{"at the start": false, "at the end": true} {
		t.Run(name, func(t *testing.T) {
			src := newSource(t, numbers(t, 1), numbers(t, 2))
			released := make(chan struct{})
			src.next = func() {
				for range 30 { // cleanups run on goroutines of the runtime
					runtime.GC()
					runtime.Gosched()
				}
				assert.True(t, slices.ContainsFunc(cdevice.LiveObjects(), func(o cdevice.LiveObject) bool {
					return o.Kind == "HostReader"
				}), "collected while it is read")
			}
			s := exported(&endOf{src, func() { close(released) }})
			func() {
				r, err := cdata.ImportCRecordReader(s, nil)
				require.NoError(t, err)
				if rdr := r.(array.RecordReader); read {
					rdr.Next()
					rdr.Next()
					rdr.Next() // no loop: the variable would be in use until its end
				}
			}()
			require.Eventually(t, func() bool {
				runtime.GC()
				select {
				case <-released:
					return true
				default:
					return false
				}
			}, time.Minute, time.Millisecond)
		})
	}
}

// endOf is a reader that calls f when a stream releases it.
type endOf struct {
	*source
	f func()
}

func (e *endOf) Release() {
	e.source.Release()
	if e.releases == 2 { // the test's reference, and that of the stream
		e.f()
	}
}

func TestErrorsOfStreams(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	t.Run("of a batch", func(t *testing.T) {
		for _, text := range []string{"disk on fire", ""} { // without a text, get_last_error is NULL
			p := cpeer.NewStream(3, 1, errno.Code(syscall.ENOSPC), text)
			defer p.Free()
			s := new(cdata.CArrowArrayStream)
			p.Export(streamMirror(s))
			r := imported(t, s)
			require.True(t, r.Next())
			for range 2 { // the error stays
				_, err := r.(arrio.Reader).Read()
				assert.ErrorIs(t, err, syscall.ENOSPC)
				assert.ErrorContains(t, err, text)
				assert.False(t, r.Next())
				assert.Equal(t, err, r.Err())
			}
		}
	})
	t.Run("before the schema", func(t *testing.T) {
		src := newSource(t)
		src.schema, src.err = func() *arrow.Schema { return nil }, errSource
		_, err := cdata.ImportCRecordReader(exported(src), nil)
		assert.ErrorIs(t, err, syscall.EIO)
		assert.ErrorContains(t, err, "disk on fire")

		src = newSource(t)
		src.schema = func() *arrow.Schema { return nil } // and no error
		_, err = cdata.ImportCRecordReader(exported(src), nil)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
		assert.ErrorContains(t, err, "schema = nil")
		const text = "cdata: ImportCArrayStream: cdevice: import: ArrowArrayStream.get_schema: invalid argument (errno 22): cdevice: wrap: schema = nil, want a schema: invalid"
		assert.PanicsWithError(t, text, func() { cdata.ImportCArrayStream(exported(src), nil) })
	})
	t.Run("of a released stream", func(t *testing.T) {
		_, err := cdata.ImportCRecordReader(new(cdata.CArrowArrayStream), nil)
		assert.ErrorIs(t, err, cdevice.ErrReleased)
		_, err = cdata.ImportCRecordReader(nil, nil)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
	})
}

// An export retains the reader, as arrow-go's does; the comment of the latter denies it.
func TestExportedReadersAreRetained(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	src := newSource(t, numbers(t, 1))
	s := new(cdata.CArrowArrayStream)
	cdata.ExportRecordReader(src, s)
	assert.Equal(t, 1, src.retains)
	cdata.ReleaseCArrowArrayStream(s)
	cdata.ReleaseCArrowArrayStream(s) // which is released
	assert.Equal(t, 1, src.releases)
	src.Release()
}

// A source that panics is an error of the stream, not the end of the process.
func TestPanicsOfReaders(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	src := newSource(t, numbers(t, 1))
	src.next = func() { panic(errSource) }
	r := imported(t, exported(src))
	assert.False(t, r.Next())
	assert.ErrorContains(t, r.Err(), "disk on fire")

	src = newSource(t, numbers(t, 1))
	src.schema = func() *arrow.Schema { panic(errSource) }
	_, err := cdata.ImportCRecordReader(exported(src), nil)
	assert.ErrorContains(t, err, "disk on fire")
}
