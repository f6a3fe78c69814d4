package cdevice_test

import (
	"context"
	"math"
	"strings"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/errno"
)

// Streams that another library exports.

func TestStreamIsReadToItsEnd(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		for _, n := range []int{0, 1, 5} {
			s := k.script(t, numbered(t, n)...)
			if n == 1 {
				s.c.callbacks().GetLastError = 0 // a producer that has no texts may leave it out
			}
			r := s.reader(t)
			assert.Zero(t, s.c.callbacks().Release, "it was moved")
			assert.Equal(t, device.CPU, r.DeviceType())
			assert.EqualValues(t, 1, s.schemas.Load(), "the schema is asked for once, at once")
			assert.Zero(t, s.nexts.Load(), "and nothing else")
			numbers, err := numbersOf(t, r.All())
			require.NoError(t, err)
			assert.Len(t, numbers, n)
			assert.NoError(t, r.Err())
			assert.Zero(t, s.errors.Load(), "get_last_error is for errors only")
			s.getSchema = func(*abi.ArrowSchema) int { return 5 } // after get_next, which does no harm
			again, err := numbersOf(t, r.All())
			require.NoError(t, err)
			assert.Empty(t, again)
			assert.Nil(t, r.RecordBatch())
			assert.EqualValues(t, n+1, s.nexts.Load(), "get_next is not called after the end")
			assert.EqualValues(t, 1, s.schemas.Load())
		}
	})
}

func TestErrorEndsTheStream(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := k.script(t, numbered(t, 3)...).failing(2, errno.Code(syscall.EIO), "disk on fire")
		r := s.reader(t)
		numbers, err := numbersOf(t, r.All())
		assert.Equal(t, upTo(2), numbers)
		var se *cdevice.ProducerError
		require.ErrorAs(t, err, &se)
		assert.Equal(t, cdevice.ProducerError{Callback: k.in("ArrowDeviceArrayStream.get_next"), Code: errno.Code(syscall.EIO), Message: "disk on fire"}, *se)
		assert.ErrorIs(t, err, syscall.EIO)
		assert.EqualError(t, err, k.in("cdevice: import: ArrowDeviceArrayStream.get_next: input/output error (errno 5): disk on fire"))

		_, again := numbersOf(t, r.All())
		assert.Equal(t, err, again, "the error stays")
		assert.Equal(t, err, r.Err())
		assert.False(t, r.Next())
		assert.EqualValues(t, 3, s.nexts.Load(), "get_next is not called after an error")
		assert.EqualValues(t, 1, s.errors.Load())
	})
}

func TestCodesOfStreamErrors(t *testing.T) {
	const noLastError = "get_last_error is NULL"
	eachKind(t, func(t *testing.T, k kind) {
		for _, row := range []struct {
			name string
			code int
			text string
			is   error // nil: nothing is known about the code
			want string
		}{
			{"no text", errno.Code(syscall.EIO), "", syscall.EIO, "get_next: input/output error (errno 5)"},
			{noLastError, errno.Code(syscall.EIO), "unheard", syscall.EIO, "get_next: input/output error (errno 5)"},
			{"invalid", errno.Code(syscall.EINVAL), "x", arrow.ErrInvalid, "get_next: invalid argument (errno 22): x"},
			{"not implemented", errno.Code(syscall.ENOSYS), "x", arrow.ErrNotImplemented, ""},
			{"not supported", errno.Code(syscall.ENOTSUP), "x", device.ErrNotSupported, ""},
			{"operation not supported", errno.Code(syscall.EOPNOTSUPP), "x", device.ErrNotSupported, ""},
			{"canceled", errno.Code(syscall.ECANCELED), "x", context.Canceled, ""},
			{"timed out", errno.Code(syscall.ETIMEDOUT), "x", context.DeadlineExceeded, ""},
			{"no memory", errno.Code(syscall.ENOMEM), "x", syscall.ENOMEM, ""},
			{"negative", -5, "x", nil, "get_next: code -5: x"},
			{"least", math.MinInt32, "", nil, "get_next: code -2147483648"},
			{"unknown", math.MaxInt32, "", errno.Error(math.MaxInt32), ""},
			{"text that is not UTF-8", errno.Code(syscall.EIO), "a\xffb", syscall.EIO, "(errno 5): a\ufffdb"},
		} {
			t.Run(row.name, func(t *testing.T) {
				s := k.script(t).failing(0, row.code, row.text)
				if row.name == noLastError {
					s.c.callbacks().GetLastError = 0
				}
				_, err := numbersOf(t, s.reader(t).All())
				var se *cdevice.ProducerError
				require.ErrorAs(t, err, &se)
				assert.Equal(t, row.code, se.Code)
				assert.Equal(t, row.name == noLastError || row.text == "", se.Message == "")
				assert.Contains(t, err.Error(), row.want)
				assert.Contains(t, err.Error(), k.in("cdevice: import: ArrowDeviceArrayStream.get_next: "))
				if row.is != nil && row.is != syscall.Errno(0) { // the number has an error on Unix only
					assert.ErrorIs(t, err, row.is)
				} else {
					assert.Empty(t, se.Unwrap())
				}
			})
		}
	})
}

// A batch that is retained outlives its stream.
func TestStreamIsReleasedEarly(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		for read := range 3 {
			s := k.script(t, numbered(t, 3)...)
			r, err := s.c.importRecords()
			require.NoError(t, err)
			var kept *cdevice.RecordBatch
			for range read {
				require.True(t, r.Next())
				kept = r.RecordBatch()
			}
			if kept != nil {
				kept.Retain()
			}
			r.Retain()
			r.Release()
			assert.Zero(t, s.releases.Load(), "there is a reference left")
			r.Release()
			assert.EqualValues(t, 1, s.releases.Load())
			assert.False(t, r.Next(), "released")
			assert.ErrorIs(t, r.Err(), cdevice.ErrReleased, "it does not look like the end")
			_, err = numbersOf(t, r.All())
			assert.ErrorIs(t, err, cdevice.ErrReleased)
			assert.EqualValues(t, read, s.nexts.Load())
			if kept != nil {
				assert.Equal(t, read-1, numberOf(t, kept))
				kept.Release()
			}
		}
	})
}

// Faults of the stream itself are detected before a callback is called.
func TestBadStreams(t *testing.T) {
	importers := map[string]func(cStream) error{
		"batches": func(s cStream) error { _, err := s.importRecords(); return err },
		"arrays":  func(s cStream) error { _, err := s.importArrays(); return err },
	}
	rows := map[string]func(*script){
		"ArrowDeviceArrayStream.get_schema = NULL, want a callback": func(s *script) { s.c.callbacks().GetSchema = 0 },
		"ArrowDeviceArrayStream.get_next = NULL, want a callback":   func(s *script) { s.c.callbacks().GetNext = 0 },
		"ArrowDeviceArrayStream.device_type = 0, want":              func(s *script) { s.stream.DeviceType = 0 },
		"ArrowDeviceArrayStream.device_type = -1, want":             func(s *script) { s.stream.DeviceType = -1 },
	}
	eachKind(t, func(t *testing.T, k kind) {
		for items, read := range importers {
			err := read(k.noStream)
			assert.EqualError(t, err, k.in("cdevice: import: ArrowDeviceArrayStream = NULL, want a struct to import: invalid"))
			released := k.newStream()
			released.callbacks().Release = 0
			err = read(released)
			assert.ErrorIs(t, err, cdevice.ErrReleased)
			assert.EqualError(t, err, k.in("cdevice: import: ArrowDeviceArrayStream.release = NULL: invalid: already released, or never filled"))
			for want, set := range rows {
				if strings.Contains(want, "device_type") && k.name == plainKind.name {
					continue
				}
				t.Run(items+"/"+want, func(t *testing.T) {
					checkLeaks(t)
					s := k.script(t)
					set(s)
					err := read(s.c)
					assert.ErrorIs(t, err, arrow.ErrInvalid)
					assert.ErrorContains(t, err, k.in("cdevice: import: "+want))
					assert.EqualValues(t, 1, s.releases.Load())
					assert.Zero(t, s.schemas.Load())
				})
			}
		}
	})
}

func TestSchemaOfAStreamThatCannotBeHad(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		for name, row := range map[string]struct {
			getSchema func(a *arena, out *abi.ArrowSchema) int
			want      string
		}{
			"fails":                        {func(*arena, *abi.ArrowSchema) int { return 22 }, "ArrowDeviceArrayStream.get_schema: invalid argument (errno 22): no schema today"},
			"fails without get_last_error": {func(*arena, *abi.ArrowSchema) int { return 22 }, "ArrowDeviceArrayStream.get_schema: invalid argument (errno 22)"},

			"released":  {func(_ *arena, out *abi.ArrowSchema) int { out.Release = 0; return 0 }, "ArrowDeviceArrayStream.get_schema.ArrowSchema.release"},
			"malformed": {func(a *arena, out *abi.ArrowSchema) int { s, _ := foreignSchema(a, "w:-1"); *out = *s; return 0 }, "ArrowDeviceArrayStream.get_schema.ArrowSchema.format"},
			"no struct": {func(a *arena, out *abi.ArrowSchema) int { s, _ := foreignSchema(a, "l"); *out = *s; return 0 }, "ArrowDeviceArrayStream.get_schema.ArrowSchema.format"},
		} {
			t.Run(name, func(t *testing.T) {
				checkLeaks(t)
				s := k.script(t)
				s.text = "no schema today"
				if strings.HasSuffix(name, "without get_last_error") {
					s.c.callbacks().GetLastError = 0
				}
				s.getSchema = func(out *abi.ArrowSchema) int { return row.getSchema(s.arena, out) }
				_, err := s.c.importRecords()
				assert.ErrorContains(t, err, k.in(row.want))
				assert.ErrorIs(t, err, arrow.ErrInvalid)
				assert.EqualValues(t, 1, s.releases.Load())
				assert.Zero(t, s.nexts.Load())
			})
		}
	})
}

// An array that does not fit the stream, or that a batch cannot be made of, is released, and ends the stream.
func TestArraysMustFitTheirStream(t *testing.T) {
	const array = "ArrowDeviceArrayStream.get_next.ArrowDeviceArray.array."
	for _, row := range []struct {
		change func(*abi.ArrowDeviceArray)
		want   string
	}{
		{func(a *abi.ArrowDeviceArray) { a.DeviceType = 12 }, "get_next.ArrowDeviceArray.device_type = 12, want 1, the device type of the stream"},
		{func(a *abi.ArrowDeviceArray) { a.SyncEvent = 8 }, "get_next.ArrowDeviceArray.sync_event"},
		{func(a *abi.ArrowDeviceArray) { a.Array.NBuffers = 2 }, array + "n_buffers = 2, want 1"},
		{func(a *abi.ArrowDeviceArray) { a.Array.Length = -1 }, array + "length = -1"},
		{func(a *abi.ArrowDeviceArray) { a.Array.Offset = -1 }, array + "offset = -1, want 0 to"},
		{func(a *abi.ArrowDeviceArray) { a.Array.Offset = 1 }, array + "children[0].length = 1, want at"},
		{func(a *abi.ArrowDeviceArray) { a.Array.NullCount = 1 }, array + "null_count = 1"},
		{func(a *abi.ArrowDeviceArray) { abi.At[abi.ArrowArray](children(&a.Array)[0]).NBuffers = 1 }, array + "children[0].n_buffers = 1, want 2"},
	} {
		eachKind(t, func(t *testing.T, k kind) {
			if k.name == plainKind.name && !strings.HasPrefix(row.want, array) {
				return // a member that an ArrowArray lacks
			}
			s := k.script(t, numbered(t, 3)...).changing(1, row.change)
			exported := cdevice.ReadStats().ExportedArrays
			numbers, err := numbersOf(t, s.reader(t).All())
			assert.Equal(t, []int{0}, numbers)
			assert.ErrorContains(t, err, k.in(row.want))
			assert.ErrorIs(t, err, arrow.ErrInvalid)
			assert.Equal(t, exported, cdevice.ReadStats().ExportedArrays, "the array was released")
			assert.EqualValues(t, 2, s.nexts.Load(), "and the stream is over")
		})
	}
}

func TestOptionsReachTheBatchesOfAStream(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		t.Run("WithReleaser", func(t *testing.T) {
			count := 0
			r, err := k.script(t, numbered(t, 3)...).c.importRecords(cdevice.WithReleaser(func(release func()) { count++; release() }))
			require.NoError(t, err)
			_, err = numbersOf(t, r.All())
			require.NoError(t, err)
			assert.Equal(t, 3, count, "the batches'")
			r.Release()
			assert.Equal(t, 4, count, "and the stream's")
		})
		t.Run("a panic in one", func(t *testing.T) {
			s := k.script(t)
			assert.Panics(t, func() { _, _ = s.c.importRecords(optionThatPanics[cdevice.ImportOption]()) })
			assert.EqualValues(t, 1, s.releases.Load())
		})
	})
	t.Run("WithDevice of a plain stream", func(t *testing.T) {
		checkLeaks(t)
		numbers, err := numbersOf(t, plainKind.script(t, numbered(t, 2)...).reader(t, cdevice.WithDevice(device.CPUDevice())).All())
		require.NoError(t, err)
		assert.Equal(t, upTo(2), numbers)
		s := plainKind.script(t, numbered(t, 2)...)
		_, err = s.c.importRecords(cdevice.WithDevice(gpuOnly{device.CPUDevice()}))
		assert.EqualError(t, err, "cdevice: import: WithDevice = cuda:3, want the CPU, where the memory of an ArrowArray is: invalid")
		assert.Zero(t, s.schemas.Load(), "at once")
	})
}

// A function that validates finds contents that an import does not look at.
func TestMapValidatesTheBatchesOfAStream(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := k.script(t, wrap(t, oneColumn(t, fromJSON(t, arrow.BinaryTypes.String, `["a"]`))))
		s.changing(0, func(out *abi.ArrowDeviceArray) {
			offsets := allocC[int32](s.arena, 2)
			offsets[1] = -7
			abi.Slice[uintptr](abi.At[abi.ArrowArray](children(&out.Array)[0]).Buffers, 3)[1] = sliceAddress(offsets)
		})
		_, err := numbersOf(t, s.reader(t).Map(valid).All())
		assert.ErrorContains(t, err, "cdevice: validate: column[0].offsets[1] = -7")
	})
}

// Chunks of structs may have nulls of their own: they come in as arrays.
func TestStreamOfSlicedStructs(t *testing.T) {
	rows := fromJSON(t, pointType, `[{"x":0,"s":"a"},{"x":1,"s":"b"},null,{"x":3,"s":"d"},{"x":4,"s":"e"}]`)
	chunk := array.NewSlice(rows, 1, 4)
	defer chunk.Release()
	chunked := arrow.NewChunked(pointType, []arrow.Array{chunk, rows})
	defer chunked.Release()
	eachKind(t, func(t *testing.T, k kind) {
		open := func() cStream {
			w, err := cdevice.WrapChunked(chunked, device.CPUDevice())
			require.NoError(t, err)
			defer w.Release()
			out := k.newStream()
			require.NoError(t, out.exportArrays(w))
			return out
		}
		r, err := open().importArrays()
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

		batches, err := open().importRecords()
		require.NoError(t, err)
		defer batches.Release()
		assert.False(t, batches.Next())
		assert.ErrorContains(t, batches.Err(), k.in("ArrowDeviceArrayStream.get_next.ArrowDeviceArray.array.null_count = 1, want 0 for a record batch"))
	})
}
