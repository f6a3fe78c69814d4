package cdevice_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// The rules of the C stream interface, for its producer: plain streams that we export,
// called as a consumer in C does.
// https://arrow.apache.org/docs/format/CStreamInterface.html

// "This callback may be called several times"; what it gives is not the stream's.
func TestPlainGetSchemaAnyNumberOfTimes(t *testing.T) {
	checkLeaks(t)
	metadata := arrow.NewMetadata([]string{"k"}, []string{"v"})
	rec := oneColumn(t, fromJSON(t, arrow.PrimitiveTypes.Int32, `[1]`))
	schema := arrow.NewSchema(rec.Schema().Fields(), &metadata)
	rec = array.NewRecordBatch(schema, rec.Columns(), 1)
	defer rec.Release()
	b := wrap(t, rec)
	r, err := cdevice.NewRecordReader(schema, device.CPU, yielding(nil, b))
	require.NoError(t, err)
	s := exportPlain(t, r)
	var all []*abi.ArrowSchema
	for range 3 {
		out := new(abi.ArrowSchema)
		require.Zero(t, bridge.CallPlainGetSchema(plainStream(s), out))
		all = append(all, out)
		array := garbagePlain()
		require.Zero(t, bridge.CallPlainGetNext(plainStream(s), plainArray(array)), "in between, and after the end")
		cdevice.ReleaseCArrowArray(array)
	}
	cdevice.ReleaseCArrowArrayStream(s)
	for _, out := range all {
		got, err := cdevice.ImportSchema(cdevice.SchemaFromPtr(addressOf(out)))
		require.NoError(t, err)
		assert.True(t, schema.Equal(got))
		assert.True(t, metadata.Equal(got.Metadata()))
	}
}

// The end is success and a released array, however often it is asked for, and nothing is
// written behind the array.
func TestPlainGetNextMarksTheEnd(t *testing.T) {
	checkLeaks(t)
	for _, n := range []int{0, 2} {
		s := exportPlain(t, iterated(t, nil, numbered(t, n)...))
		for i := range n {
			b, code := askPlain(t, s)
			require.Zero(t, code)
			assert.Equal(t, i, numberOf(t, b))
			b.Release()
		}
		for range 3 {
			out := garbageArray()
			require.Zero(t, bridge.CallPlainGetNext(plainStream(s), abi.As[abi.ArrowArray](&out.Array)))
			assert.Zero(t, out.Array.Release)
			untouched := garbageArray()
			untouched.Array = out.Array
			assert.Equal(t, *untouched, *out)
		}
		assert.Empty(t, plainError(s))
	}
}

// Arrays are released on their own: before the stream, and after it.
func TestPlainArraysOutliveTheirStream(t *testing.T) {
	checkLeaks(t)
	stops := 0
	r, err := cdevice.NewRecordReaderFunc(numberedSchema, device.CPU, nextOf(nil, numbered(t, 3)...), func() { stops++ })
	require.NoError(t, err)
	s := exportPlain(t, r)
	b, code := askPlain(t, s)
	require.Zero(t, code)
	cdevice.ReleaseCArrowArrayStream(s)
	assert.Zero(t, plainStream(s).Release, "release marks the stream released")
	cdevice.ReleaseCArrowArrayStream(s)
	assert.Equal(t, 1, stops, "the source was stopped in the middle, once")
	assert.Equal(t, 0, numberOf(t, b))
	b.Release()
}

// "The release callback must not assume that any other callback was called."
func TestPlainStreamReleasedBeforeAnythingWasAsked(t *testing.T) {
	checkLeaks(t)
	r, err := cdevice.NewRecordReader(numberedSchema, device.CPU, func(func(*cdevice.RecordBatch, error) bool) {
		t.Error("the iterator was started")
	})
	require.NoError(t, err)
	cdevice.ReleaseCArrowArrayStream(exportPlain(t, r))
}

// get_last_error is NUL-terminated UTF-8 that stays until the next call, and NULL where the
// last call had no error.
func TestPlainGetLastError(t *testing.T) {
	checkLeaks(t)
	source := errors.New("on \xff fire\x00!")
	s := exportPlain(t, iterated(t, source, numbered(t, 1)...))
	last := func() uintptr { return cpeer.CallForPointer(plainStream(s).GetLastError, addressOf(plainStream(s))) }
	assert.Zero(t, last(), "nothing has happened")
	b, code := askPlain(t, s)
	require.Zero(t, code)
	b.Release()
	assert.Zero(t, last(), "no error")
	for range 2 { // an error is given again
		_, code = askPlain(t, s)
		assert.EqualValues(t, syscall.EIO, code)
		text := last()
		runtime.GC()
		assert.Equal(t, "on \ufffd fire\ufffd!", abi.String(text))
		assert.Equal(t, text, last(), "it stays where it is")
		assert.True(t, cpeer.IsPinned(text))
	}
	text := last()
	var schema abi.ArrowSchema
	require.Zero(t, bridge.CallPlainGetSchema(plainStream(s), &schema), "the schema is there all the same")
	assert.Zero(t, last())
	assert.False(t, cpeer.IsPinned(text), "it is not kept for longer")
	cdevice.ReleaseCArrowSchema(cdevice.SchemaFromPtr(addressOf(&schema)))
}

func TestErrorsOfPlainStreamsAreErrnos(t *testing.T) {
	checkLeaks(t)
	for _, row := range []struct {
		err  error
		want syscall.Errno
	}{
		{errSource, syscall.EIO},
		{fmt.Errorf("deep down: %w", syscall.ENOSPC), syscall.ENOSPC},
		{context.Canceled, syscall.ECANCELED},
		{context.DeadlineExceeded, syscall.ETIMEDOUT},
		{arrow.ErrInvalid, syscall.EINVAL},
		{arrow.ErrNotImplemented, syscall.ENOSYS},
		{&cdevice.ProducerError{Callback: "ArrowArrayStream.get_next", Code: 71}, 71},
	} {
		s := exportPlain(t, asked(t, row.err, numbered(t, 1)...))
		r, err := cdevice.ImportPlainRecordReader(s)
		require.NoError(t, err)
		numbers, err := numbersOf(t, r.All())
		assert.Equal(t, upTo(1), numbers)
		assert.ErrorIs(t, err, row.want)
		assert.ErrorContains(t, err, "ArrowArrayStream.get_next")
		assert.ErrorContains(t, err, row.err.Error(), "the text comes along")
		r.Release()
	}
}

func TestPanicInAPlainStreamIsAnError(t *testing.T) {
	checkLeaks(t)
	seen := panics(t)
	pending := batchOnDevice(t, waitPanics, 1)
	defer pending.Release()
	for name, r := range map[string]func() (*cdevice.RecordReader, error){
		"function": func() (*cdevice.RecordReader, error) {
			return cdevice.NewRecordReaderFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) { panic(errSource) }, nil)
		},
		"iterator": func() (*cdevice.RecordReader, error) {
			return cdevice.NewRecordReader(numberedSchema, device.CPU, func(func(*cdevice.RecordBatch, error) bool) { panic(errSource) })
		},
		"event": func() (*cdevice.RecordReader, error) {
			r, err := cdevice.NewRecordReader(pending.Schema(), waitPanics.Type, yielding(nil, pending))
			if err != nil {
				return nil, err
			}
			defer r.Release()
			return r.AsCPU(background) // waits in get_next
		},
	} {
		t.Run(name, func(t *testing.T) {
			from, err := r()
			require.NoError(t, err)
			s := exportPlain(t, from)
			for range 2 {
				_, code := askPlain(t, s)
				assert.EqualValues(t, syscall.EIO, code)
				assert.Contains(t, plainError(s), "panic")
			}
		})
	}
	assert.Zero(t, seen.Load(), "told to the consumer alone")
}

// A consumer that goes on with a stream it released gets an error, and no crash.
func TestPlainStreamUsedAfterRelease(t *testing.T) {
	checkLeaks(t)
	s := exportPlain(t, asked(t, nil, numbered(t, 1)...))
	stale := *plainStream(s)
	cdevice.ReleaseCArrowArrayStream(s)
	assert.EqualValues(t, syscall.EINVAL, bridge.CallPlainGetNext(&stale, plainArray(garbagePlain())))
	assert.EqualValues(t, syscall.EINVAL, bridge.CallPlainGetSchema(&stale, new(abi.ArrowSchema)))
	assert.Empty(t, bridge.CallPlainGetLastError(&stale))
	bridge.CallPlainStreamRelease(&stale)
	assert.Zero(t, stale.Release)
}

func TestNullOutputsOfPlainCallbacks(t *testing.T) {
	checkLeaks(t)
	s := exportPlain(t, asked(t, nil, numbered(t, 1)...))
	assert.EqualValues(t, syscall.EINVAL, bridge.CallPlainGetSchema(plainStream(s), nil))
	assert.Contains(t, plainError(s), "ArrowSchema = NULL")
	assert.EqualValues(t, syscall.EINVAL, bridge.CallPlainGetNext(plainStream(s), nil))
	assert.Contains(t, plainError(s), "export: ArrowArray = NULL")
	b, code := askPlain(t, s)
	require.Zero(t, code, "nothing was lost")
	b.Release()
}

// "The stream may be moved": a bitwise copy, and the source is marked released.
func TestPlainStreamMayBeMoved(t *testing.T) {
	checkLeaks(t)
	s := exportPlain(t, asked(t, nil, numbered(t, 2)...))
	moved := *plainStream(s)
	plainStream(s).Release = 0
	b, code := askPlain(t, cdevice.ArrayStreamFromPtr(addressOf(&moved)))
	require.Zero(t, code)
	b.Release()
	r, err := cdevice.ImportPlainRecordReader(cdevice.ArrayStreamFromPtr(addressOf(&moved)))
	require.NoError(t, err)
	defer r.Release()
	numbers, err := numbersOf(t, r.All())
	require.NoError(t, err)
	assert.Equal(t, []int{1}, numbers)
}

// A consumer may call from any thread, also from one that Go has never seen.
func TestPlainStreamOnForeignThreads(t *testing.T) {
	checkLeaks(t)
	for _, r := range []*cdevice.RecordReader{iterated(t, errSource, numbered(t, 5)...), asked(t, errSource, numbered(t, 5)...)} {
		s := plainStream(exportPlain(t, r))
		var schema abi.ArrowSchema
		require.Zero(t, cpeer.CallOnThread(s.GetSchema, addressOf(s), addressOf(&schema)))
		cdevice.ReleaseCArrowSchema(cdevice.SchemaFromPtr(addressOf(&schema)))
		for i := range 5 {
			out := garbagePlain()
			require.Zero(t, cpeer.CallOnThread(s.GetNext, addressOf(s), addressOf(plainArray(out))))
			b, err := cdevice.ImportPlainRecordBatchWithSchema(out, numberedSchema)
			require.NoError(t, err)
			assert.Equal(t, i, numberOf(t, b))
			b.Release()
		}
		assert.EqualValues(t, syscall.EIO, cpeer.CallOnThread(s.GetNext, addressOf(s), addressOf(plainArray(garbagePlain()))))
		cpeer.CallOnThread(s.Release, addressOf(s), 0)
		assert.Zero(t, s.Release)
	}
}

// A consumer that breaks the rule and calls from many threads at once harms only itself.
func TestConcurrentConsumerOfAPlainStream(t *testing.T) {
	checkLeaks(t)
	const n = 200
	s := exportPlain(t, iterated(t, errSource, numbered(t, n)...))
	var seen atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				out := garbagePlain()
				if bridge.CallPlainGetNext(plainStream(s), plainArray(out)) != 0 {
					plainError(s)
					return
				}
				seen.Add(1)
				cdevice.ReleaseCArrowArray(out)
			}
		})
	}
	wg.Wait()
	assert.EqualValues(t, n, seen.Load())
}

// The source may release the very stream that asks it.
func TestPlainStreamReleasedInsideItsOwnCallback(t *testing.T) {
	checkLeaks(t)
	b := numberedBatch(t, 1)
	defer b.Release()
	var s *cdata.CArrowArrayStream
	stops := 0
	r, err := cdevice.NewRecordReaderFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) {
		cdevice.ReleaseCArrowArrayStream(s)
		assert.Zero(t, stops, "it is still being asked")
		b.Retain()
		return b, nil
	}, func() { stops++ })
	require.NoError(t, err)
	s = exportPlain(t, r)
	got, code := askPlain(t, s)
	require.Zero(t, code)
	got.Release()
	assert.Equal(t, 1, stops)
}

// Every type, in every variant (nulls, sliced, empty), goes through a stream of arrays.
func TestPlainStreamOfEveryType(t *testing.T) {
	checkLeaks(t)
	for _, c := range cases.All() {
		t.Run(c.Name, func(t *testing.T) {
			var chunks []arrow.Array
			for _, v := range cases.Variants {
				arr, err := c.Array(memory.DefaultAllocator, v)
				require.NoError(t, err)
				defer arr.Release()
				chunks = append(chunks, arr)
			}
			chunked := arrow.NewChunked(c.Type, chunks)
			defer chunked.Release()
			w, err := cdevice.WrapChunked(chunked, device.CPUDevice())
			require.NoError(t, err)
			out := garbagePlainStream()
			require.NoError(t, cdevice.ExportPlainArrayReader(w, out))
			w.Release()
			r, err := cdevice.ImportPlainArrayReader(out)
			require.NoError(t, err)
			r.Map(valid)
			defer r.Release()
			assert.True(t, arrow.TypeEqual(c.Type, r.Field().Type))
			i := 0
			for a, err := range r.All() {
				require.NoError(t, err)
				sameOnHost(t, chunks[i], a)
				i++
			}
			assert.Len(t, chunks, i)
		})
	}
}

func TestExportPlainReaderNamesItsArguments(t *testing.T) {
	checkLeaks(t)
	r := asked(t, nil)
	defer r.Release()
	released := asked(t, nil)
	released.Release()
	out := garbagePlainStream()
	for want, err := range map[string]error{
		"cdevice: export: RecordReader = nil, want a reader: invalid":     cdevice.ExportPlainRecordReader(nil, out),
		"cdevice: export: ArrayReader = nil, want a reader: invalid":      cdevice.ExportPlainArrayReader(nil, out),
		"cdevice: export: ArrowArrayStream = NULL, want a struct to fill": cdevice.ExportPlainRecordReader(r, nil),
		"cdevice: export: reader: invalid: already released":              cdevice.ExportPlainRecordReader(released, out),
	} {
		assert.ErrorContains(t, err, want)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
	}
	assert.Equal(t, *plainStream(garbagePlainStream()), *plainStream(out), "written only on success")
}

// Device memory is refused when the stream is exported, where no host can read the type;
// otherwise batch by batch.
func TestPlainStreamOfDeviceMemory(t *testing.T) {
	checkLeaks(t)
	of := func(id device.ID) *cdevice.ArrayReader {
		a, _ := onDevice(t, id, 0)
		t.Cleanup(a.Release)
		r, err := cdevice.NewArrayReader(a.Field(), id.Type, func(yield func(*cdevice.Array, error) bool) { yield(a, nil) })
		require.NoError(t, err)
		t.Cleanup(r.Release)
		return r
	}
	out := garbagePlainStream()
	for _, id := range []device.ID{cuda, {Type: device.ROCM}} {
		err := cdevice.ExportPlainArrayReader(of(id), out)
		assert.ErrorIs(t, err, device.ErrNotSupported)
		assert.EqualError(t, err, fmt.Sprintf("cdevice: export: ArrayReader.DeviceType = %s, want memory that the CPU can access: the CPU cannot access memory of %[1]s: %s",
			id.Type, device.ErrNotSupported))
	}
	assert.Equal(t, *plainStream(garbagePlainStream()), *plainStream(out))

	require.NoError(t, cdevice.ExportPlainArrayReader(of(device.ID{Type: device.Metal}), out))
	for range 2 {
		assert.EqualValues(t, syscall.ENOTSUP, bridge.CallPlainGetNext(plainStream(out), plainArray(garbagePlain())))
		assert.Contains(t, plainError(out), "Array.DeviceID = metal:0, want memory that the CPU can access")
	}
	cdevice.ReleaseCArrowArrayStream(out)
}

// Each batch's event is waited for before get_next gives it.
func TestPlainStreamWaitsForEvents(t *testing.T) {
	checkLeaks(t)
	event := &testEvent{}
	testEvents[34] = event
	a, _ := onDevice(t, extDev, 34)
	defer a.Release()
	r, err := cdevice.NewArrayReader(a.Field(), device.ExtDev, func(yield func(*cdevice.Array, error) bool) {
		if yield(a, nil) {
			yield(a, nil)
		}
	})
	require.NoError(t, err)
	defer r.Release()
	s := garbagePlainStream()
	cpu, err := r.AsCPU(background)
	require.NoError(t, err)
	defer cpu.Release()
	require.NoError(t, cdevice.ExportPlainArrayReader(cpu, s))
	defer cdevice.ReleaseCArrowArrayStream(s)
	for i := range 2 {
		assert.Equal(t, i, event.waits)
		out := garbagePlain()
		require.Zero(t, bridge.CallPlainGetNext(plainStream(s), plainArray(out)))
		assert.Equal(t, i+1, event.waits)
		cdevice.ReleaseCArrowArray(out)
	}
}

// The end of the context ends a wait, and the stream with it: with an errno and a text, and
// for good.
func TestContextEndsAPlainStream(t *testing.T) {
	checkLeaks(t)
	for want, ctx := range map[syscall.Errno]func() (context.Context, context.CancelFunc){
		syscall.ETIMEDOUT: func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(background, 20*time.Millisecond)
		},
		syscall.ECANCELED: func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(background)
			time.AfterFunc(20*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		a, _ := onDevice(t, stuck, 1)
		r, err := cdevice.NewArrayReader(a.Field(), stuck.Type, func(yield func(*cdevice.Array, error) bool) { yield(a, nil) })
		require.NoError(t, err)
		ctx, cancel := ctx()
		r = made(t, r)(r.AsCPU(ctx))
		s := garbagePlainStream()
		require.NoError(t, cdevice.ExportPlainArrayReader(r, s))
		start := time.Now()
		for range 2 {
			assert.EqualValues(t, want, bridge.CallPlainGetNext(plainStream(s), plainArray(garbagePlain())))
			assert.Contains(t, plainError(s), ": context ")
		}
		assert.Less(t, time.Since(start), 2*time.Second)
		var schema abi.ArrowSchema
		assert.Zero(t, bridge.CallPlainGetSchema(plainStream(s), &schema), "the schema is there all the same")
		cdevice.ReleaseCArrowSchema(cdevice.SchemaFromPtr(addressOf(&schema)))
		cdevice.ReleaseCArrowArrayStream(s)
		cancel()
		r.Release()
		a.Release()
	}
}

// Once the context is done, nothing is asked of the reader: not by get_next, and not for
// what is ready.
func TestEndedContextAsksTheReaderNothing(t *testing.T) {
	checkLeaks(t)
	ctx, cancel := context.WithCancel(background)
	r := asked(t, nil, numbered(t, 3)...)
	defer r.Release()
	cpu, err := r.AsCPU(ctx)
	require.NoError(t, err)
	defer cpu.Release()
	s := garbagePlainStream()
	require.NoError(t, cdevice.ExportPlainRecordReader(cpu, s))
	defer cdevice.ReleaseCArrowArrayStream(s)
	b, code := askPlain(t, s)
	require.Zero(t, code)
	b.Release()
	cancel()
	for range 2 {
		_, code = askPlain(t, s)
		assert.EqualValues(t, syscall.ECANCELED, code)
		assert.Equal(t, "cdevice: read: context canceled", plainError(s))
	}
	require.True(t, r.Next())
	assert.Equal(t, 1, numberOf(t, r.RecordBatch()), "the next one is there for others")
}

// A stream that is over has no error of its context.
func TestEndedPlainStreamOutlivesItsContext(t *testing.T) {
	checkLeaks(t)
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	r := asked(t, nil)
	r = made(t, r)(r.AsCPU(ctx))
	s := garbagePlainStream()
	require.NoError(t, cdevice.ExportPlainRecordReader(r, s))
	r.Release()
	defer cdevice.ReleaseCArrowArrayStream(s)
	for range 2 {
		b, code := askPlain(t, s)
		assert.Zero(t, code)
		assert.Nil(t, b)
		cancel()
	}
}

// A batch that could not be exported is not skipped: the stream ends with it.
func TestFailedPlainExportEndsTheStream(t *testing.T) {
	checkLeaks(t)
	s := exportPlain(t, asked(t, nil, numbered(t, 3)...))
	restore := bridge.LimitBlocks(1)
	_, code := askPlain(t, s)
	restore()
	assert.EqualValues(t, syscall.ENOMEM, code)
	_, code = askPlain(t, s)
	assert.EqualValues(t, syscall.ENOMEM, code, "the same again")
	assert.Contains(t, plainError(s), "no memory")
}

// The reader that was exported and the stream share the batches; both may end first.
func TestPlainExportSharesItsReader(t *testing.T) {
	checkLeaks(t)
	r := asked(t, nil, numbered(t, 3)...)
	s := garbagePlainStream()
	require.NoError(t, cdevice.ExportPlainRecordReader(r, s))
	require.True(t, r.Next())
	b, _ := askPlain(t, s)
	assert.Equal(t, 1, numberOf(t, b))
	b.Release()
	cdevice.ReleaseCArrowArrayStream(s)
	require.True(t, r.Next())
	assert.Equal(t, 2, numberOf(t, r.RecordBatch()))
	r.Release()
}
