package cdevice_test

import (
	"runtime"
	"sync"
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
	"github.com/arrowdevice/arrowdevice/internal/errno"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// Streams that we export, called as a consumer in C does.

func TestExportedStreamCallsWhatItWasMadeOf(t *testing.T) {
	checkLeaks(t)
	records := func() array.RecordReader {
		var all []arrow.RecordBatch
		for i := range 3 {
			all = append(all, numberedRecord(i))
		}
		rdr, err := array.NewRecordReader(numberedSchema, all)
		require.NoError(t, err)
		for _, rec := range all {
			rec.Release()
		}
		return rdr
	}
	for name, open := range map[string]func(t *testing.T) *cdevice.RecordReader{
		"iterator": func(t *testing.T) *cdevice.RecordReader { return iterated(t, nil, numbered(t, 3)...) },
		"function": func(t *testing.T) *cdevice.RecordReader { return asked(t, nil, numbered(t, 3)...) },
		"C stream": func(t *testing.T) *cdevice.RecordReader {
			r, err := cdevice.ImportRecordReader(newScript(t, numbered(t, 3)...).stream)
			require.NoError(t, err)
			return r
		},
		"another reader": func(t *testing.T) *cdevice.RecordReader {
			from := newScript(t, numbered(t, 3)...).reader(t)
			r, err := cdevice.NewRecordReader(from.Schema(), from.DeviceType(), from.All())
			require.NoError(t, err)
			return r
		},
		"arrow-go reader": func(t *testing.T) *cdevice.RecordReader {
			rdr := records()
			defer rdr.Release()
			r, err := cdevice.WrapRecordReader(rdr, device.CPUDevice())
			require.NoError(t, err)
			return r
		},
		"arrow-go reader, copied": func(t *testing.T) *cdevice.RecordReader {
			rdr := records()
			defer rdr.Release()
			r, err := copyReader(background, rdr, device.CPUDevice())
			require.NoError(t, err)
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				s := k.export(t, open(t))
				if d, ok := s.(streamOf[cdevice.CArrowDeviceArrayStream]); ok {
					assert.EqualValues(t, device.CPU, d.at.DeviceType)
				}
				var schema abi.ArrowSchema
				for range 2 {
					require.Zero(t, s.getSchema(&schema))
					got, err := cdevice.ImportSchema(cdevice.SchemaFromPtr(addressOf(&schema)))
					require.NoError(t, err)
					assert.True(t, numberedSchema.Equal(got))
				}
				for i := range 3 {
					b, code := nextOfStream(t, s)
					require.Zero(t, code)
					require.NotNil(t, b)
					assert.Equal(t, i, numberOf(t, b))
					b.Release()
				}
				for range 3 {
					b, code := nextOfStream(t, s)
					assert.Zero(t, code)
					assert.Nil(t, b, "the end, however often it is asked for")
				}
				assert.Empty(t, s.lastError())
			})
		})
	}
}

// The end is a released array, and nothing is written behind an ArrowArray.
func TestEndWritesNothingBehindAPlainArray(t *testing.T) {
	checkLeaks(t)
	s := plainKind.export(t, asked(t, nil))
	out := garbageArray()
	require.Zero(t, s.getNext(arrayOf[cdata.CArrowArray]{cdevice.ArrayFromPtr(addressOf(&out.Array))}))
	assert.Zero(t, out.Array.Release)
	untouched := garbageArray()
	untouched.Array = out.Array
	assert.Equal(t, *untouched, *out)
}

// "This callback may be called several times"; the stream does not own its results.
func TestSchemasOutliveTheirStream(t *testing.T) {
	metadata := arrow.NewMetadata([]string{"k"}, []string{"v"})
	schema := arrow.NewSchema(numberedSchema.Fields(), &metadata)
	eachKind(t, func(t *testing.T, k kind) {
		r, err := cdevice.NewRecordReader(schema, device.CPU, yielding(nil, numbered(t, 1)...))
		require.NoError(t, err)
		s := k.export(t, r)
		var all [3]abi.ArrowSchema
		for i := range all { // before, between and after the batches
			require.Zero(t, s.getSchema(&all[i]))
			out := k.newArray()
			require.Zero(t, s.getNext(out))
			out.release()
		}
		s.release()
		for i := range all {
			got, err := cdevice.ImportSchema(cdevice.SchemaFromPtr(addressOf(&all[i])))
			require.NoError(t, err)
			assert.True(t, schema.Equal(got))
			assert.True(t, metadata.Equal(got.Metadata()))
		}
	})
}

// Every type goes through a stream and comes back the same.
func TestStreamOfEveryType(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
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
				out := k.newStream()
				require.NoError(t, out.exportArrays(w))
				w.Release()
				r, err := out.importArrays()
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
				assert.False(t, r.Next())
				require.NoError(t, r.Err())
			})
		}
	})
}

// A release in the middle stops the source; earlier batches stay valid.
func TestReleaseInTheMiddleStopsTheSource(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		batches := numbered(t, 3)
		stops := 0
		r, err := readerFunc(numberedSchema, device.CPU, nextOf(nil, batches...), func() { stops++ })
		require.NoError(t, err)
		s := k.export(t, r)
		b, _ := nextOfStream(t, s)
		s.release()
		s.release()
		assert.Zero(t, s.callbacks().Release, "release marks the stream released")
		assert.Equal(t, 1, stops, "once")
		assert.Equal(t, 0, numberOf(t, b))
		b.Release()
	})
}

// The source may release the very stream that asks it.
func TestStreamReleasedInsideItsOwnCallback(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		batches := numbered(t, 1)
		var s cStream
		stops := 0
		open := func(give error) {
			r, err := readerFunc(numberedSchema, device.CPU, func() (*cdevice.RecordBatch, error) {
				s.release()
				assert.Zero(t, stops, "it is still being asked")
				if give != nil {
					return nil, give
				}
				batches[0].Retain()
				return batches[0], nil
			}, func() { stops++ })
			require.NoError(t, err)
			s = k.export(t, r)
		}
		open(nil)
		b, code := nextOfStream(t, s)
		require.Zero(t, code)
		b.Release()
		assert.Equal(t, 1, stops)

		stops = 0
		open(errSource)
		_, code = nextOfStream(t, s)
		assert.EqualValues(t, errno.Code(syscall.EIO), code)
		assert.Equal(t, 1, stops)
		for range 3 { // the text of an error that can no longer be read is not pinned: a leaked pin would end the process
			runtime.GC()
		}
	})
}

// A consumer that goes on with a stream it released gets an error, and no crash.
func TestExportedStreamUsedAfterRelease(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := k.export(t, asked(t, nil, numbered(t, 1)...))
		callbacks := *s.callbacks()
		s.release()
		assert.Zero(t, s.callbacks().Release)
		*s.callbacks() = callbacks
		_, code := nextOfStream(t, s)
		assert.EqualValues(t, errno.Code(syscall.EINVAL), code)
		assert.EqualValues(t, errno.Code(syscall.EINVAL), s.getSchema(new(abi.ArrowSchema)))
		assert.Empty(t, s.lastError())
		s.release()
		assert.Zero(t, s.callbacks().Release)
	})
}

func TestNullOutputsOfCallbacks(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := k.export(t, asked(t, nil, numbered(t, 1)...))
		assert.EqualValues(t, errno.Code(syscall.EINVAL), s.getSchema(nil))
		assert.Contains(t, s.lastError(), "ArrowSchema = NULL")
		assert.EqualValues(t, errno.Code(syscall.EINVAL), s.getNext(nil))
		assert.Contains(t, s.lastError(), k.in("export: ArrowDeviceArray = NULL"))
		b, code := nextOfStream(t, s)
		require.Zero(t, code, "nothing was lost")
		b.Release()
	})
}

func TestExportReaderWritesOnlyOnSuccess(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r, released := asked(t, nil), asked(t, nil)
		defer r.Release()
		released.Release()
		out := k.newStream()
		for want, err := range map[string]error{
			"cdevice: export: RecordReader = nil, want a reader: invalid":           out.exportRecords(nil),
			"cdevice: export: ArrayReader = nil, want a reader: invalid":            out.exportArrays(nil),
			"cdevice: export: ArrowDeviceArrayStream = NULL, want a struct to fill": k.noStream.exportRecords(r),
			"cdevice: export: reader: invalid: already released":                    out.exportRecords(released),
		} {
			assert.ErrorContains(t, err, k.in(want))
			assert.ErrorIs(t, err, arrow.ErrInvalid)
		}
		assert.True(t, out.untouched(), "written only on success")
	})
}

// A consumer may call from any thread, also from one that Go has never seen.
func TestStreamOnForeignThreads(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		for _, r := range []*cdevice.RecordReader{iterated(t, errSource, numbered(t, 5)...), asked(t, errSource, numbered(t, 5)...)} {
			s := k.export(t, r)
			calls := s.callbacks()
			var schema abi.ArrowSchema
			require.Zero(t, cpeer.CallOnThread(calls.GetSchema, s.address(), addressOf(&schema)))
			cdevice.ReleaseStruct(cdevice.SchemaFromPtr(addressOf(&schema)))
			for i := range 5 {
				out := k.newArray()
				require.Zero(t, cpeer.CallOnThread(calls.GetNext, s.address(), addressOf(out.members())))
				b, err := out.importBatchWithSchema(numberedSchema)
				require.NoError(t, err)
				assert.Equal(t, i, numberOf(t, b))
				b.Release()
			}
			assert.EqualValues(t, errno.Code(syscall.EIO), cpeer.CallOnThread(calls.GetNext, s.address(), addressOf(k.newArray().members())))
			cpeer.CallOnThread(calls.Release, s.address(), 0)
			assert.Zero(t, calls.Release)
		}
	})
}

// A consumer that breaks the rule and calls from many threads at once harms only itself.
func TestConcurrentConsumerGetsEachBatchOnce(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		const n = 200
		s := k.export(t, iterated(t, errSource, numbered(t, n)...))
		var mu sync.Mutex
		seen := map[int]int{}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for {
					out := k.newArray()
					if s.getNext(out) != 0 {
						s.lastError()
						return
					}
					b, err := out.importBatchWithSchema(numberedSchema)
					if !assert.NoError(t, err) {
						return
					}
					mu.Lock()
					seen[numberOf(t, b)]++
					mu.Unlock()
					b.Release()
				}
			})
		}
		wg.Wait()
		assert.Len(t, seen, n)
	})
}

// A stream may be moved, as every struct of the interface.
func TestExportedStreamMayBeMoved(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		moved := k.export(t, asked(t, nil, numbered(t, 2)...)).moved()
		b, code := nextOfStream(t, moved)
		require.Zero(t, code)
		b.Release()
		r, err := moved.importRecords()
		require.NoError(t, err)
		defer r.Release()
		numbers, err := numbersOf(t, r.All())
		require.NoError(t, err)
		assert.Equal(t, []int{1}, numbers)
	})
}

// The reader that was exported and the stream share the batches; both may end first.
func TestReaderAndItsExportShareTheBatches(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		r := asked(t, nil, numbered(t, 3)...)
		out := k.newStream()
		require.NoError(t, out.exportRecords(r))
		require.True(t, r.Next())
		b, _ := nextOfStream(t, out)
		assert.Equal(t, 1, numberOf(t, b))
		b.Release()
		out.release()
		require.True(t, r.Next())
		assert.Equal(t, 2, numberOf(t, r.RecordBatch()))
		r.Release()
	})
}

// Conversions of readers and arrays for a consumer apply to the exported arrays, and to the type
// that the stream declares.
func TestConversionsReachTheArraysOfAnExport(t *testing.T) {
	checkLeaks(t)
	event := &testEvent{}
	testEvents[21] = event
	a, cell := onDevice(t, extDev, 21)
	defer a.Release()
	for _, row := range []struct {
		name  string
		of    func(*cdevice.ArrayReader) (*cdevice.ArrayReader, error)
		on    device.Type
		event uintptr
		waits int
	}{
		{"itself", nil, device.ExtDev, addressOf(cell), 0},
		{"AsCPU", func(r *cdevice.ArrayReader) (*cdevice.ArrayReader, error) { return r.AsCPU(background) }, device.CPU, 0, 1},
	} {
		event.waits = 0
		r, err := cdevice.NewArrayReader(a.Field(), device.ExtDev, func(yield func(*cdevice.Array, error) bool) { yield(a, nil) })
		require.NoError(t, err)
		if row.of != nil {
			r = made(t, r)(row.of(r))
		}
		s, out := garbageStream(), garbageArray()
		require.NoError(t, cdevice.ExportArrayReader(r, s), row.name)
		r.Release()
		assert.EqualValues(t, row.on, s.DeviceType)
		require.Zero(t, bridge.CallGetNext(abi.As[abi.ArrowDeviceArrayStream](s), abi.As[abi.ArrowDeviceArray](out)))
		assert.EqualValues(t, row.on, out.DeviceType)
		assert.Equal(t, row.event, out.SyncEvent)
		assert.Equal(t, row.waits, event.waits)
		cdevice.ReleaseStruct(out)
		cdevice.ReleaseStruct(s)
	}
	far, _ := onDevice(t, cuda, 0)
	defer far.Release()
	r, err := cdevice.NewArrayReader(far.Field(), device.CUDA, func(yield func(*cdevice.Array, error) bool) { yield(far, nil) })
	require.NoError(t, err)
	r = made(t, r)(r.AsCPU(background))
	defer r.Release()
	assert.False(t, r.Next())
	assert.ErrorIs(t, r.Err(), device.ErrNotSupported)
	assert.ErrorContains(t, r.Err(), "cdevice: read: Array.DeviceID = cuda:3, want memory that the CPU can access: the CPU cannot access memory of cuda:3: CopyToHost copies it, or CopyTo with device.CPUDevice(): not supported")
}
