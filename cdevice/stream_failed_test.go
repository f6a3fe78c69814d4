package cdevice_test

import (
	"bytes"
	"fmt"
	"io"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/errno"
	"github.com/arrowdevice/arrowdevice/internal/testing/cpeer"
)

// Streams that fail before they have a schema.

var errNoTable = fmt.Errorf("no such table: %w", syscall.ENOENT)

// schemaless is an arrow-go reader that has failed, or not, and has no schema.
type schemaless struct{ failing }

func (schemaless) Schema() *arrow.Schema { return nil }

func hostReaderOf(r *cdevice.RecordReader) array.RecordReader {
	defer r.Release()
	return r.HostReader(background, nil)
}

// failedReaders are readers of a source that failed with an error before it had a schema.
func failedReaders(t *testing.T, failure error) map[string]func() *cdevice.RecordReader {
	failed := func() *cdevice.RecordReader {
		r, err := cdevice.NewFailedRecordReader(device.CPU, failure)
		require.NoError(t, err)
		return r
	}
	return map[string]func() *cdevice.RecordReader{
		"error": failed,
		"arrow-go reader": func() *cdevice.RecordReader {
			r, err := cdevice.WrapRecordReader(schemaless{failing{err: failure}}, device.CPUDevice())
			require.NoError(t, err)
			return r
		},
		"HostReader": func() *cdevice.RecordReader {
			h := hostReaderOf(failed())
			defer h.Release()
			r, err := cdevice.WrapRecordReader(h, device.CPUDevice())
			require.NoError(t, err)
			return r
		},
		"CopyTo": func() *cdevice.RecordReader {
			r := failed()
			return made(t, r)(r.CopyTo(background, device.CPUDevice()))
		},
		"AsCPU":            func() *cdevice.RecordReader { r := failed(); return made(t, r)(r.AsCPU(background)) },
		"Map and Prefetch": func() *cdevice.RecordReader { return failed().Map(same).Prefetch(2) },
		"closed":           func() *cdevice.RecordReader { r := failed(); closes(t, r); return r },
	}
}

func TestFailureBeforeTheSchemaIsExported(t *testing.T) {
	checkLeaks(t)
	text := "no such table: " + syscall.ENOENT.Error()
	for name, open := range failedReaders(t, errNoTable) {
		t.Run(name, func(t *testing.T) {
			t.Run("Go", func(t *testing.T) {
				r := open()
				defer r.Release()
				assert.Nil(t, r.Schema())
				assert.Equal(t, errNoTable, r.Err())
				numbers, err := numbersOf(t, r.All())
				assert.Empty(t, numbers)
				assert.Equal(t, errNoTable, err)
				assert.False(t, r.Next())
			})
			t.Run("device stream", func(t *testing.T) {
				s := export(t, open())
				var schema abi.ArrowSchema
				for range 2 {
					assert.EqualValues(t, errno.Code(syscall.ENOENT), bridge.CallGetSchema(abi.As[abi.ArrowDeviceArrayStream](s), &schema))
					assert.Equal(t, text, abi.String(lastError(s)))
					_, code := next(t, s)
					assert.EqualValues(t, errno.Code(syscall.ENOENT), code)
					assert.Equal(t, text, abi.String(lastError(s)))
				}
				assert.Zero(t, schema)
				_, err := cdevice.ImportRecordReader(s)
				assert.EqualError(t, err, "cdevice: import: ArrowDeviceArrayStream.get_schema: "+syscall.ENOENT.Error()+" (errno 2): "+text)
				assert.ErrorIs(t, err, syscall.ENOENT)
				_, err = cdevice.ImportArrayReader(export(t, open()))
				assert.ErrorContains(t, err, text)
			})
			t.Run("plain stream", func(t *testing.T) {
				drained := cpeer.Drained{SchemaCode: errno.Code(syscall.ENOENT), Text: true}
				assert.Equal(t, drained, cpeer.Drain(plainStream(exportPlain(t, open()))))
				_, err := cdevice.ImportRecordReader(exportPlain(t, open()))
				assert.EqualError(t, err, "cdevice: import: ArrowArrayStream.get_schema: "+syscall.ENOENT.Error()+" (errno 2): "+text)
				_, err = cdata.ImportCRecordReader(exportPlain(t, open()), nil)
				assert.ErrorContains(t, err, text)
			})
			t.Run("cdata", func(t *testing.T) {
				h := hostReaderOf(open())
				defer h.Release()
				out := garbagePlainStream()
				cdata.ExportRecordReader(h, out)
				_, err := cdevice.ImportRecordReader(out)
				assert.EqualError(t, err, "cdevice: import: ArrowArrayStream.get_schema: input/output error (errno 5): "+text)
			})
			t.Run("asynchronous stream", func(t *testing.T) {
				r := open()
				defer r.Release()
				c := exported(t, background, cpeer.Behaviour{SchemaRequests: 1, SchemaN: 1}, r)
				require.NoError(t, c.WaitReleased())
				assert.Equal(t, []cpeer.Event{cpeer.OnError, cpeer.Release}, c.Events())
				code, message := c.Error()
				assert.EqualValues(t, errno.Code(syscall.ENOENT), code)
				assert.Equal(t, text, message)

				s := connect(t, soon(t), r, 0)
				_, err := s.reader(soon(t))
				assert.Equal(t, &cdevice.ProducerError{Callback: "ArrowAsyncDeviceStreamHandler.on_error", Code: errno.Code(syscall.ENOENT), Message: text}, err)
				s.close()
			})
		})
	}
}

// An error of an import keeps its code on the way to the next consumer.
func TestFailureBeforeTheSchemaIsRelayed(t *testing.T) {
	checkLeaks(t)
	s := newScript(t)
	s.text = "no such table"
	s.getSchema = func(*abi.ArrowSchema) int { return 71 }
	_, failure := cdevice.ImportRecordReader(s.stream)
	require.Error(t, failure)
	for name, open := range failedReaders(t, failure) {
		out := export(t, open())
		assert.EqualValues(t, 71, bridge.CallGetSchema(abi.As[abi.ArrowDeviceArrayStream](out), new(abi.ArrowSchema)), name)
		assert.Equal(t, failure.Error(), abi.String(lastError(out)), name)
	}
}

// The end is no schema: it is an error when it comes first.
func TestEndBeforeTheSchema(t *testing.T) {
	checkLeaks(t)
	for name, open := range failedReaders(t, io.EOF) {
		r := open()
		assert.EqualError(t, r.Err(), "EOF", name)
		assert.ErrorIs(t, r.Err(), io.ErrUnexpectedEOF, name)
		assert.EqualValues(t, errno.Code(syscall.EIO), bridge.CallGetSchema(abi.As[abi.ArrowDeviceArrayStream](export(t, r)), new(abi.ArrowSchema)), name)
	}
	empty, err := ipc.NewReader(bytes.NewReader(nil), ipc.WithDelayReadSchema(true))
	require.NoError(t, err)
	defer empty.Release()
	r, err := cdevice.WrapRecordReader(empty, device.CPUDevice())
	require.NoError(t, err)
	assert.ErrorContains(t, r.Err(), "could not read schema")
	assert.NotErrorIs(t, r.Err(), io.EOF)
	r.Release()
}

func TestNewReadersNameWhatIsMissing(t *testing.T) {
	const noError = "cdevice: new: err = nil, want the error of the source: invalid"
	noType := func(n int) string {
		return fmt.Sprintf("cdevice: new: device_type = %d, want the type of a device: invalid", n)
	}
	noArrays := func(func(*cdevice.Array, error) bool) {}
	for _, row := range []struct {
		err  error
		want string
	}{
		{second(cdevice.WrapRecordReader(schemaless{}, device.CPUDevice())), "cdevice: wrap: schema = nil, want a schema: invalid"},
		{second(cdevice.NewFailedRecordReader(device.CPU, nil)), noError},
		{second(cdevice.NewFailedRecordReader(device.CPU, (*cdevice.FieldError)(nil))), noError},
		{second(cdevice.NewFailedRecordReader(0, errNoTable)), noType(0)},
		{second(cdevice.NewRecordReader(numberedSchema, 0, yielding(nil))), noType(0)},
		{second(readerFunc(numberedSchema, -1, nextOf(nil), nil)), noType(-1)},
		{second(cdevice.NewArrayReader(arrow.Field{Type: arrow.Null}, 0, noArrays)), noType(0)},
	} {
		assert.EqualError(t, row.err, row.want)
		assert.ErrorIs(t, row.err, arrow.ErrInvalid)
	}
}

// A consumer that takes a failure for a success, as DuckDB does of every code but 1, finds released structs.
func TestFailuresFillReleasedStructs(t *testing.T) {
	eachKind(t, func(t *testing.T, k kind) {
		failed, err := cdevice.NewFailedRecordReader(device.CPU, errNoTable)
		require.NoError(t, err)
		s := k.export(t, failed)
		defer s.release()
		schema := &abi.ArrowSchema{Format: 1, NChildren: 2, Children: 3, Release: 4, PrivateData: 5}
		require.NotZero(t, s.getSchema(schema))
		assert.Zero(t, *schema)

		s = k.export(t, asked(t, errSource))
		defer s.release()
		out := k.newArray()
		require.NotZero(t, s.getNext(out))
		assert.True(t, out.zero())
	})
	task := new(abi.ArrowAsyncTask)
	bridge.ExportTask(goTask(func(*abi.ArrowDeviceArray) int { return 5 }), task)
	out := garbageArray()
	require.Equal(t, 5, bridge.CallExtractData(task, abi.As[abi.ArrowDeviceArray](out)))
	assert.Zero(t, *out)
}
