package cdevice_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/arrio"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/errno"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// Errors of the source of a stream, and their form for a consumer in C.

// The text of get_last_error is NUL-terminated UTF-8, and valid until the next call; after a success there is none.
func TestLastErrorOfAnExportedStream(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := k.export(t, iterated(t, errors.New("on \xff fire\x00!"), numbered(t, 1)...))
		assert.Zero(t, lastErrorAt(s), "nothing has happened")
		b, code := nextOfStream(t, s)
		require.Zero(t, code)
		b.Release()
		assert.Zero(t, lastErrorAt(s), "no error")

		for range 2 { // an error is given again
			_, code = nextOfStream(t, s)
			assert.EqualValues(t, errno.Code(syscall.EIO), code)
			text := lastErrorAt(s)
			runtime.GC()
			assert.Equal(t, "on \ufffd fire\ufffd!", abi.String(text))
			assert.Equal(t, text, lastErrorAt(s), "it stays where it is")
			assert.True(t, cpeer.IsPinned(text))
		}
		var schema abi.ArrowSchema
		text := lastErrorAt(s)
		require.Zero(t, s.getSchema(&schema), "the schema is there all the same")
		assert.Zero(t, lastErrorAt(s))
		assert.False(t, cpeer.IsPinned(text), "it is not kept for longer")
		cdevice.ReleaseStruct(cdevice.SchemaFromPtr(addressOf(&schema)))
	})
}

func TestErrorsOfSourcesBecomeErrnos(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		_, notInvalid := cdevice.NewRecordReader(nil, 0, nil)
		for _, row := range []struct {
			err  error
			want int
		}{
			{errSource, errno.Code(syscall.EIO)},
			{fmt.Errorf("deep down: %w", syscall.ENOSPC), errno.Code(syscall.ENOSPC)},
			{context.Canceled, errno.Code(syscall.ECANCELED)},
			{context.DeadlineExceeded, errno.Code(syscall.ETIMEDOUT)},
			{notInvalid, errno.Code(syscall.EINVAL)},
			{fmt.Errorf("%w: a type", arrow.ErrNotImplemented), errno.Code(syscall.ENOSYS)},
			{fmt.Errorf("gpu: %w", device.ErrNotSupported), errno.Code(syscall.ENOTSUP)},
			{fmt.Errorf("gpu: %w", cdevice.ErrReleased), errno.Code(syscall.EINVAL)},
			{&cdevice.ProducerError{Callback: "ArrowDeviceArrayStream.get_next", Code: -12, Message: "odd"}, -12},
			// An error is an error for C, even if its number is 0 as a C int.
			{&cdevice.ProducerError{Callback: "ArrowDeviceArrayStream.get_next"}, errno.Code(syscall.EIO)},
			{&cdevice.ProducerError{Callback: "ArrowDeviceArrayStream.get_next", Code: 1 << 32}, errno.Code(syscall.EIO)},
			{syscall.Errno(0), errno.Code(syscall.EIO)},
			{syscall.Errno(1 << 32), errno.Code(syscall.EIO)},
		} {
			t.Run(row.err.Error(), func(t *testing.T) {
				for _, r := range []*cdevice.RecordReader{iterated(t, row.err), asked(t, row.err)} {
					s := k.export(t, r)
					_, code := nextOfStream(t, s)
					assert.Equal(t, row.want, code)
					assert.Equal(t, row.err.Error(), s.lastError())
				}
				wrapped, err := cdevice.WrapRecordReader(failing{err: row.err}, device.CPUDevice())
				require.NoError(t, err)
				for _, r := range []*cdevice.RecordReader{iterated(t, row.err), asked(t, row.err), wrapped} {
					_, err := numbersOf(t, r.All())
					assert.Equal(t, row.err, err, "for Go it is itself")
					r.Release()
				}
			})
		}
	})
}

// An error that wraps io.EOF is of a source that was cut off, and no end of the stream: not for
// consumers, nor for functions of arrow-go, which take every error that wraps io.EOF for the end.
func TestErrorThatWrapsTheEndIsNoEnd(t *testing.T) {
	checkLeaks(t)
	cut := fmt.Errorf("batch 7: %w", errors.Join(io.EOF, syscall.ENOSPC))
	for name, source := range map[string]func() *cdevice.RecordReader{
		"function": func() *cdevice.RecordReader { return asked(t, cut) },
		"AsCPU":    func() *cdevice.RecordReader { r := asked(t, cut); return made(t, r)(r.AsCPU(background)) },
		"CopyTo": func() *cdevice.RecordReader {
			r := asked(t, cut)
			return made(t, r)(r.CopyTo(background, device.CPUDevice()))
		},
		"another stream": func() *cdevice.RecordReader { return iterating(t, asked(t, cut)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := export(t, source())
			_, code := next(t, s)
			assert.EqualValues(t, errno.Code(syscall.ENOSPC), code)
			assert.Equal(t, cut.Error(), bridge.CallGetLastError(abi.As[abi.ArrowDeviceArrayStream](s)))
			r := source()
			h := r.HostReader(background, nil)
			_, err := arrio.Copy(nil, readerOf{h})
			h.Release()
			_, ofReader := numbersOf(t, r.All())
			r.Release()
			for _, err := range []error{err, ofReader} {
				assert.EqualError(t, err, cut.Error())
				assert.NotErrorIs(t, err, io.EOF)
				assert.ErrorIs(t, err, io.ErrUnexpectedEOF)
				assert.ErrorIs(t, err, syscall.ENOSPC)
			}
		})
	}
}

// strangeError is an error whose text panics.
type strangeError struct{}

func (strangeError) Error() string { panic("which error?") }

// An error of a program may panic when a consumer asks for its text or its errno: no goroutine of this library
// does. internal/items has the ways in which it may.
func TestErrorsThatPanic(t *testing.T) {
	checkLeaks(t)
	const want = "panic in an error of type cdevice_test.strangeError: which error?"
	for name, source := range map[string]func() *cdevice.RecordReader{
		"function": func() *cdevice.RecordReader { return asked(t, strangeError{}) },
		"no schema": func() *cdevice.RecordReader {
			r, err := cdevice.WrapRecordReader(schemaless{failing{err: strangeError{}}}, device.CPUDevice())
			require.NoError(t, err)
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := export(t, source())
			_, code := next(t, s)
			assert.EqualValues(t, errno.Code(syscall.EIO), code)
			assert.Contains(t, bridge.CallGetLastError(abi.As[abi.ArrowDeviceArrayStream](s)), want)

			r := source()
			defer r.Release()
			c := exported(t, background, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 1}, r)
			require.NoError(t, c.WaitReleased())
			code32, message := c.Error()
			assert.EqualValues(t, errno.Code(syscall.EIO), code32)
			assert.Contains(t, message, want)
		})
	}
}

// An error that came from one C stream leaves by another with its code.
func TestErrorsKeepTheirCodeThroughStreams(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		from, err := k.script(t).failing(0, 71, "protocol").c.importRecords()
		require.NoError(t, err)
		s := k.export(t, from)
		_, code := nextOfStream(t, s)
		assert.Equal(t, 71, code)
		assert.Contains(t, s.lastError(), "protocol")
	})
}

func TestPanicInASourceIsAnError(t *testing.T) {
	checkLeaks(t)
	defer func(before func(any, []byte)) { bridge.OnPanic = before }(bridge.OnPanic)
	bridge.OnPanic = func(v any, _ []byte) { t.Errorf("%v was only printed", v) }
	iterator := func(yield func(*cdevice.RecordBatch, error) bool) { panic("in the iterator") }
	pending := batchOnDevice(t, waitPanics, 1)
	defer pending.Release()
	for name, row := range map[string]struct {
		open func() (*cdevice.RecordReader, error)
		want string
	}{
		"iterator": {func() (*cdevice.RecordReader, error) {
			return cdevice.NewRecordReader(numberedSchema, device.CPU, iterator)
		}, "cdevice: panic: in the iterator"},
		"arrow-go reader": {func() (*cdevice.RecordReader, error) {
			return cdevice.WrapRecordReader(panicking{}, device.CPUDevice())
		}, "cdevice: panic: in a reader"},
		"arrow-go reader, copied": {func() (*cdevice.RecordReader, error) {
			return copyReader(background, panicking{}, device.CPUDevice())
		}, "cdevice: panic: in a reader"},
		"event": {func() (*cdevice.RecordReader, error) {
			r, err := cdevice.NewRecordReader(pending.Schema(), waitPanics.Type, yielding(nil, pending))
			if err != nil {
				return nil, err
			}
			defer r.Release()
			return r.AsCPU(background) // waits in get_next
		}, "panic: the source is on fire"},
	} {
		t.Run(name, func(t *testing.T) {
			eachKind(t, func(t *testing.T, k kind) {
				r, err := row.open()
				require.NoError(t, err)
				s := k.export(t, r)
				for range 2 {
					_, code := nextOfStream(t, s)
					assert.EqualValues(t, errno.Code(syscall.EIO), code)
					assert.Contains(t, s.lastError(), row.want)
				}
			})
			r, err := row.open()
			require.NoError(t, err)
			for range 2 {
				_, err = numbersOf(t, r.All())
				assert.ErrorContains(t, err, row.want, "in Go too")
			}
			r.Release()
		})
	}
}

// Batches of a source must fit the stream.
func TestSourcesMustKeepTheirWord(t *testing.T) {
	checkLeaks(t)
	other := wrap(t, oneColumn(t, fromJSON(t, arrow.BinaryTypes.String, `["a"]`)))
	good := numbered(t, 1)[0]
	for name, row := range map[string]struct {
		b    *cdevice.RecordBatch
		on   device.Type
		want string
	}{
		"nil":         {nil, device.CPU, "neither a batch nor an error"},
		"schema":      {other, device.CPU, "RecordBatch.Column(0).type = utf8, want the stream's: int64"},
		"device type": {good, device.CUDA, "device_type = cpu, want cuda, the device type of the stream"},
	} {
		t.Run(name, func(t *testing.T) {
			once := func() (*cdevice.RecordBatch, error) {
				if row.b != nil {
					row.b.Retain()
				}
				return row.b, nil
			}
			f, err := readerFunc(numberedSchema, row.on, once, nil)
			require.NoError(t, err)
			i, err := cdevice.NewRecordReader(numberedSchema, row.on, yielding(nil, row.b))
			require.NoError(t, err)
			for _, r := range []*cdevice.RecordReader{f, i} {
				_, err := numbersOf(t, r.All())
				assert.ErrorContains(t, err, row.want)
				assert.ErrorIs(t, err, arrow.ErrInvalid)
				r.Release()
			}
		})
	}
	r, err := cdevice.WrapRecordReader(told{rec: viewOf(t, other), schema: numberedSchema}, device.CPUDevice())
	require.NoError(t, err)
	defer r.Release()
	_, err = numbersOf(t, r.All())
	assert.ErrorContains(t, err, "RecordBatch.Column(0).type")
}

// A batch that could not be exported is not skipped: the stream ends with it.
func TestFailedExportEndsTheStream(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		s := k.export(t, asked(t, nil, numbered(t, 3)...))
		b, _ := nextOfStream(t, s)
		b.Release()
		restore := bridge.LimitBlocks(1)
		_, code := nextOfStream(t, s)
		restore()
		assert.EqualValues(t, errno.Code(syscall.ENOMEM), code)
		text := s.lastError()
		assert.Contains(t, text, "no memory")
		_, code = nextOfStream(t, s)
		assert.EqualValues(t, errno.Code(syscall.ENOMEM), code, "the same again")
		assert.Equal(t, text, s.lastError())
	})
}

func TestReleasedBatchDoesNotComeBack(t *testing.T) {
	checkLeaks(t)
	in := newScript(t, numbered(t, 1)...).reader(t)
	require.True(t, in.Next())
	b := in.RecordBatch()
	require.False(t, in.Next()) // b is released, and its memory
	iterator, err := cdevice.NewRecordReader(numberedSchema, device.CPU, yielding(nil, b))
	require.NoError(t, err)
	_, err = numbersOf(t, iterator.All())
	assert.ErrorIs(t, err, cdevice.ErrReleased)
	iterator.Release()
}

// WithReleaser also applies to refused input.
func TestReleaseWithHoldsForBadInput(t *testing.T) {
	checkLeaks(t)
	count := 0
	with := cdevice.WithReleaser(func(release func()) { count++; release() })
	s := newScript(t)
	s.stream.DeviceType = 0
	_, err := cdevice.ImportRecordReader(s.stream, with)
	assert.Error(t, err)
	assert.Equal(t, 1, count, "the stream's release")

	for name, change := range map[string]func(*abi.ArrowDeviceArray){
		"device type": func(a *abi.ArrowDeviceArray) { a.DeviceType = 12 },
		"buffers":     func(a *abi.ArrowDeviceArray) { a.Array.NBuffers = 2 },
	} {
		r := importing(t, with)(newScript(t, numbered(t, 1)...).changing(0, change))
		count = 0
		assert.False(t, r.Next())
		assert.Equal(t, 1, count, "the array's release: %s", name)
		r.Release()
	}

	count = 0
	out, schema := garbageArray(), garbageSchema()
	require.NoError(t, cdevice.ExportRecordBatch(numbered(t, 1)[0], out, schema))
	cdevice.ReleaseStruct(schema)
	_, err = cdevice.ImportRecordBatch(out, schema, with)
	assert.ErrorIs(t, err, cdevice.ErrReleased)
	assert.Equal(t, 1, count, "of an array whose schema is bad")
	assert.Zero(t, out.Array.Release)
}
