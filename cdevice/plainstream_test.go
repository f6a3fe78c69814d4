package cdevice_test

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// Streams of the C stream interface, without a device.

// askPlain calls get_next, and imports its array: nil at the end.
func askPlain(t testing.TB, s *cdata.CArrowArrayStream) (b *cdevice.RecordBatch, code int) {
	t.Helper()
	out := garbagePlain()
	if code = bridge.CallPlainGetNext(plainStream(s), plainArray(out)); code != 0 || plainArray(out).Release == 0 {
		return nil, code
	}
	b, err := cdevice.ImportRecordBatchWithSchema(out, numberedSchema)
	require.NoError(t, err)
	return b, 0
}

// The rules of the C stream interface, for its consumer: streams that another library exports.
// https://arrow.apache.org/docs/format/CStreamInterface.html

func TestPlainStreamIsReadToItsEnd(t *testing.T) {
	checkLeaks(t)
	for _, n := range []int{0, 1, 5} {
		s := newPlainScript(t, numbered(t, n)...)
		r := s.plainReader(t)
		assert.Zero(t, plainStream(s.plain).Release, "it was moved")
		assert.Equal(t, device.CPU, r.DeviceType())
		assert.EqualValues(t, 1, s.schemas.Load(), "the schema is asked for once, at once")
		assert.Zero(t, s.nexts.Load(), "and nothing else")
		numbers, err := numbersOf(t, r.All())
		require.NoError(t, err)
		assert.Len(t, numbers, n)
		assert.NoError(t, r.Err())
		assert.Zero(t, s.errors.Load(), "get_last_error is for errors only")
	}
}

// The end is a released array, even if other members are set; after it get_next is not called.
func TestPlainStreamEndsWithAReleasedArray(t *testing.T) {
	s := newPlainScript(t, numbered(t, 5)...)
	next := s.getNext
	s.getNext = func(call int, out *abi.ArrowDeviceArray) int {
		if call != 2 {
			return next(call, out)
		}
		*out = *abi.As[abi.ArrowDeviceArray](garbageArray())
		out.Array.Release = 0
		return 0
	}
	r := s.plainReader(t)
	numbers, err := numbersOf(t, r.All())
	require.NoError(t, err)
	assert.Equal(t, upTo(2), numbers)
	for range 3 {
		assert.False(t, r.Next())
	}
	assert.EqualValues(t, 3, s.nexts.Load())
}

func TestPlainStreamErrors(t *testing.T) {
	for _, row := range []struct {
		code int
		text string
		is   error
		want string
	}{
		{int(syscall.EIO), "disk on fire", syscall.EIO, "cdevice: import: ArrowArrayStream.get_next: input/output error (errno 5): disk on fire"},
		{int(syscall.EIO), "", syscall.EIO, "cdevice: import: ArrowArrayStream.get_next: input/output error (errno 5)"},
		{int(syscall.EINVAL), "x", arrow.ErrInvalid, "cdevice: import: ArrowArrayStream.get_next: invalid argument (errno 22): x"},
		{int(syscall.ENOSYS), "", arrow.ErrNotImplemented, ""},
		{int(syscall.ECANCELED), "", context.Canceled, ""},
		{-5, "a\xffb", nil, "cdevice: import: ArrowArrayStream.get_next: code -5: a\ufffdb"},
	} {
		s := newPlainScript(t, numbered(t, 3)...).failing(2, row.code, row.text)
		r := s.plainReader(t)
		numbers, err := numbersOf(t, r.All())
		assert.Equal(t, upTo(2), numbers)
		var se *cdevice.ProducerError
		require.ErrorAs(t, err, &se)
		assert.Equal(t, "ArrowArrayStream.get_next", se.Callback)
		assert.Equal(t, row.code, se.Code)
		if row.is != nil {
			assert.ErrorIs(t, err, row.is)
		}
		if row.want != "" {
			assert.EqualError(t, err, row.want)
		}
		_, again := numbersOf(t, r.All())
		assert.Equal(t, err, again, "the error stays")
		assert.Equal(t, err, r.Err())
		assert.EqualValues(t, 3, s.nexts.Load(), "get_next is not called after an error")
		assert.EqualValues(t, 1, s.errors.Load(), "the text is asked for once, at once")
	}
}

// Faults of the stream itself are detected before a callback is called.
func TestPlainBadStreams(t *testing.T) {
	_, err := cdevice.ImportRecordReader((*cdata.CArrowArrayStream)(nil))
	assert.EqualError(t, err, "cdevice: import: ArrowArrayStream = NULL, want a struct to import: invalid")
	_, err = cdevice.ImportArrayReader(new(cdata.CArrowArrayStream))
	assert.ErrorIs(t, err, cdevice.ErrReleased)
	assert.EqualError(t, err, "cdevice: import: ArrowArrayStream.release = NULL: invalid: already released")

	for want, set := range map[string]func(*abi.ArrowArrayStream){
		"cdevice: import: ArrowArrayStream.get_schema = NULL, want a callback: invalid": func(s *abi.ArrowArrayStream) { s.GetSchema = 0 },
		"cdevice: import: ArrowArrayStream.get_next = NULL, want a callback: invalid":   func(s *abi.ArrowArrayStream) { s.GetNext = 0 },
	} {
		t.Run(want, func(t *testing.T) {
			checkLeaks(t)
			for _, read := range []func(*cdata.CArrowArrayStream) error{
				func(s *cdata.CArrowArrayStream) error { _, err := cdevice.ImportRecordReader(s); return err },
				func(s *cdata.CArrowArrayStream) error { _, err := cdevice.ImportArrayReader(s); return err },
			} {
				s := newPlainScript(t)
				set(plainStream(s.plain))
				assert.EqualError(t, read(s.plain), want)
				assert.EqualValues(t, 1, s.releases.Load())
				assert.Zero(t, s.schemas.Load())
			}
		})
	}
}

func TestSchemaOfAPlainStreamThatCannotBeHad(t *testing.T) {
	for name, row := range map[string]struct {
		getSchema func(a *arena, out *abi.ArrowSchema) int
		want      string
	}{
		"fails":     {func(*arena, *abi.ArrowSchema) int { return 22 }, "ArrowArrayStream.get_schema: invalid argument (errno 22): no schema today"},
		"released":  {func(_ *arena, out *abi.ArrowSchema) int { out.Release = 0; return 0 }, "ArrowArrayStream.get_schema.ArrowSchema.release"},
		"malformed": {func(a *arena, out *abi.ArrowSchema) int { s, _ := foreignSchema(a, "w:-1"); *out = *s; return 0 }, "ArrowArrayStream.get_schema.ArrowSchema.format"},
		"no struct": {func(a *arena, out *abi.ArrowSchema) int { s, _ := foreignSchema(a, "l"); *out = *s; return 0 }, "ArrowArrayStream.get_schema.ArrowSchema.format"},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			s := newPlainScript(t)
			s.text = "no schema today"
			s.getSchema = func(out *abi.ArrowSchema) int { return row.getSchema(s.arena, out) }
			_, err := cdevice.ImportRecordReader(s.plain)
			assert.ErrorContains(t, err, row.want)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
			assert.EqualValues(t, 1, s.releases.Load())
			assert.Zero(t, s.nexts.Load())
		})
	}
}

// A batch that is malformed, or that a batch cannot be made of, is released, and ends the
// stream.
func TestBadArraysOfAPlainStream(t *testing.T) {
	for want, change := range map[string]func(*abi.ArrowArray){
		"ArrowArrayStream.get_next.ArrowArray.n_buffers = 2, want 1":             func(a *abi.ArrowArray) { a.NBuffers = 2 },
		"ArrowArrayStream.get_next.ArrowArray.length = -1":                       func(a *abi.ArrowArray) { a.Length = -1 },
		"ArrowArrayStream.get_next.ArrowArray.offset = -1, want 0 to":            func(a *abi.ArrowArray) { a.Offset = -1 },
		"ArrowArrayStream.get_next.ArrowArray.children[0].length = 1, want at":   func(a *abi.ArrowArray) { a.Offset = 1 },
		"ArrowArrayStream.get_next.ArrowArray.null_count = 1":                    func(a *abi.ArrowArray) { a.NullCount = 1 },
		"ArrowArrayStream.get_next.ArrowArray.children[0].n_buffers = 1, want 2": func(a *abi.ArrowArray) { abi.At[abi.ArrowArray](children(a)[0]).NBuffers = 1 },
	} {
		t.Run(want, func(t *testing.T) {
			checkLeaks(t)
			s := newPlainScript(t, numbered(t, 3)...)
			next := s.getNext
			s.getNext = func(call int, out *abi.ArrowDeviceArray) int {
				code := next(call, out)
				if call == 1 {
					change(&out.Array)
				}
				return code
			}
			exported := cdevice.ReadStats().ExportedArrays
			numbers, err := numbersOf(t, s.plainReader(t).All())
			assert.Equal(t, []int{0}, numbers)
			assert.ErrorContains(t, err, want)
			assert.ErrorIs(t, err, arrow.ErrInvalid)
			assert.Equal(t, exported, cdevice.ReadStats().ExportedArrays, "the array was released")
			assert.EqualValues(t, 2, s.nexts.Load(), "and the stream is over")
		})
	}
}

func TestBatchesOutliveTheirPlainStream(t *testing.T) {
	checkLeaks(t)
	s := newPlainScript(t, numbered(t, 2)...)
	r, err := cdevice.ImportRecordReader(s.plain)
	require.NoError(t, err)
	require.True(t, r.Next())
	b := r.RecordBatch()
	b.Retain()
	r.Release()
	assert.EqualValues(t, 1, s.releases.Load())
	assert.Equal(t, 0, numberOf(t, b))
	b.Release()
}

func TestPlainStreamIsReleasedEarly(t *testing.T) {
	checkLeaks(t)
	for read := range 3 {
		s := newPlainScript(t, numbered(t, 3)...)
		r, err := cdevice.ImportRecordReader(s.plain)
		require.NoError(t, err)
		for range read {
			require.True(t, r.Next())
		}
		assert.Zero(t, s.releases.Load())
		r.Release()
		assert.EqualValues(t, 1, s.releases.Load())
		assert.False(t, r.Next(), "released")
		assert.EqualValues(t, read, s.nexts.Load())
	}
}

func TestPlainStreamCallsAreSerialised(t *testing.T) {
	checkLeaks(t)
	const n = 400
	s := newPlainScript(t, numbered(t, n)...)
	r := s.plainReader(t)
	var got atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, err := range r.All() {
				if !assert.NoError(t, err) {
					return
				}
				got.Add(1)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, n, got.Load(), "each batch once")
	assert.EqualValues(t, n+1, s.nexts.Load()) // newPlainScript looks for overlaps
}

func TestPrefetchOfAPlainStream(t *testing.T) {
	checkLeaks(t)
	for depth := range 4 {
		s := newPlainScript(t, numbered(t, 20)...).failing(15, 5, "late")
		r, err := cdevice.ImportRecordReader(s.plain)
		require.NoError(t, err)
		r.Prefetch(depth)
		assert.Zero(t, s.nexts.Load(), "it begins with the first batch that is asked for")
		numbers, err := numbersOf(t, r.All())
		assert.Equal(t, upTo(15), numbers)
		assert.ErrorContains(t, err, "late", "the error comes in its place")
		assert.EqualValues(t, 16, s.nexts.Load())
		r.Release()
		within.Eventually(t, "the release", func() bool { return s.releases.Load() == 1 })
	}
	streamsEnd(t)
}

func TestOptionsReachTheBatchesOfAPlainStream(t *testing.T) {
	t.Run("WithReleaser", func(t *testing.T) {
		checkLeaks(t)
		count := 0
		s := newPlainScript(t, numbered(t, 3)...)
		r, err := cdevice.ImportRecordReader(s.plain, cdevice.WithReleaser(func(release func()) { count++; release() }))
		require.NoError(t, err)
		_, err = numbersOf(t, r.All())
		require.NoError(t, err)
		assert.Equal(t, 3, count, "the batches'")
		r.Release()
		assert.Equal(t, 4, count, "and the stream's")
	})
	t.Run("ValidateFull", func(t *testing.T) {
		checkLeaks(t)
		bad := wrap(t, oneColumn(t, fromJSON(t, arrow.BinaryTypes.String, `["a"]`)))
		s := newPlainScript(t, bad)
		next := s.getNext
		s.getNext = func(call int, out *abi.ArrowDeviceArray) int {
			code := next(call, out)
			column := abi.At[abi.ArrowArray](children(&out.Array)[0])
			offsets := allocC[int32](s.arena, 2)
			offsets[1] = -7
			abi.Slice[uintptr](column.Buffers, 3)[1] = sliceAddress(offsets)
			return code
		}
		_, err := numbersOf(t, s.plainReader(t).Map(valid).All())
		assert.ErrorContains(t, err, "cdevice: validate: column[0].offsets[1] = -7")
	})
	t.Run("WithDevice", func(t *testing.T) {
		checkLeaks(t)
		numbers, err := numbersOf(t, newPlainScript(t, numbered(t, 2)...).plainReader(t, cdevice.WithDevice(device.CPUDevice())).All())
		require.NoError(t, err)
		assert.Equal(t, upTo(2), numbers)
		s := newPlainScript(t, numbered(t, 2)...)
		_, err = cdevice.ImportRecordReader(s.plain, cdevice.WithDevice(gpuOnly{device.CPUDevice()}))
		assert.EqualError(t, err, "cdevice: import: WithDevice = cuda:3, want the CPU, where the memory of an ArrowArray is: invalid")
		assert.Zero(t, s.schemas.Load(), "at once")
	})
	t.Run("a panic in one", func(t *testing.T) {
		s := newPlainScript(t)
		assert.Panics(t, func() { _, _ = cdevice.ImportRecordReader(s.plain, optionThatPanics[cdevice.ImportOption]()) })
		assert.EqualValues(t, 1, s.releases.Load())
	})
}

// Chunks of structs may have nulls of their own: they come in as arrays.
func TestPlainStreamOfSlicedStructs(t *testing.T) {
	checkLeaks(t)
	rows := fromJSON(t, pointType, `[{"x":0,"s":"a"},{"x":1,"s":"b"},null,{"x":3,"s":"d"},{"x":4,"s":"e"}]`)
	chunk := array.NewSlice(rows, 1, 4)
	defer chunk.Release()
	chunked := arrow.NewChunked(pointType, []arrow.Array{chunk, rows})
	defer chunked.Release()
	open := func() *cdata.CArrowArrayStream {
		w, err := cdevice.WrapChunked(chunked, device.CPUDevice())
		require.NoError(t, err)
		defer w.Release()
		out := garbagePlainStream()
		require.NoError(t, cdevice.ExportArrayReader(w, out))
		return out
	}
	r, err := cdevice.ImportArrayReader(open())
	require.NoError(t, err)
	r.Map(valid)
	var got []string
	for a, err := range r.All() {
		require.NoError(t, err)
		view, err := a.HostView(background)
		require.NoError(t, err)
		got = append(got, marshal(t, view))
		view.Release()
	}
	r.Release()
	assert.Equal(t, []string{`[{"s":"b","x":1},null,{"s":"d","x":3}]`, marshal(t, rows)}, got)

	batches, err := cdevice.ImportRecordReader(open())
	require.NoError(t, err)
	defer batches.Release()
	assert.False(t, batches.Next())
	assert.ErrorContains(t, batches.Err(), "ArrowArrayStream.get_next.ArrowArray.null_count = 1, want 0 for a record batch")
}
