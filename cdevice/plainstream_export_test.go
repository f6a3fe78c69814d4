package cdevice_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"testing"

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

// "This callback may be called several times"; the stream does not own its results.
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
		cdevice.ReleaseStruct(array)
	}
	cdevice.ReleaseStruct(s)
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
	cdevice.ReleaseStruct(cdevice.SchemaFromPtr(addressOf(&schema)))
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
		r, err := cdevice.ImportRecordReader(s)
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
			return readerFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) { panic(errSource) }, nil)
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
			require.NoError(t, cdevice.ExportArrayReader(w, out))
			w.Release()
			r, err := cdevice.ImportArrayReader(out)
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
		"cdevice: export: RecordReader = nil, want a reader: invalid":     cdevice.ExportRecordReader(nil, out),
		"cdevice: export: ArrayReader = nil, want a reader: invalid":      cdevice.ExportArrayReader(nil, out),
		"cdevice: export: ArrowArrayStream = NULL, want a struct to fill": cdevice.ExportRecordReader(r, (*cdata.CArrowArrayStream)(nil)),
		"cdevice: export: reader: invalid: already released":              cdevice.ExportRecordReader(released, out),
	} {
		assert.ErrorContains(t, err, want)
		assert.ErrorIs(t, err, arrow.ErrInvalid)
	}
	assert.Equal(t, *plainStream(garbagePlainStream()), *plainStream(out), "written only on success")
}

// Device memory is refused item by item, as AsCPU of each refuses it: the type of the stream does not
// say whether the CPU can access the memory.
func TestPlainStreamOfDeviceMemory(t *testing.T) {
	checkLeaks(t)
	for _, id := range []device.ID{cuda, {Type: device.ROCM}, {Type: device.Metal}} {
		a, _ := onDevice(t, id, 0)
		r, err := cdevice.NewArrayReader(a.Field(), id.Type, func(yield func(*cdevice.Array, error) bool) { yield(a, nil) })
		require.NoError(t, err)
		out := garbagePlainStream()
		require.NoError(t, cdevice.ExportArrayReader(r, out))
		r.Release()
		for range 2 {
			assert.EqualValues(t, syscall.ENOTSUP, bridge.CallPlainGetNext(plainStream(out), plainArray(garbagePlain())))
			assert.Contains(t, plainError(out), fmt.Sprintf("Array.DeviceID = %s, want memory that the CPU can access", id))
		}
		cdevice.ReleaseStruct(out)
		a.Release()
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
