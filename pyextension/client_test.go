//go:build cgo && unix

package pyextension

import (
	"context"
	"encoding/binary"
	"syscall"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/pyextension/internal/capi"
)

// register makes functions for one test.
func register(t *testing.T, name string, f any, opts ...Option) {
	t.Helper()
	Func(name, f, opts...)
	t.Cleanup(func() {
		functions.mu.Lock()
		defer functions.mu.Unlock()
		functions.set(nil)
		functions.failed = nil
	})
	require.NoError(t, Check())
}

// registerStream registers a function whose result is a stream of slices of its argument. next returns the number of rows
// of the n-th slice, n from 1 on, or an error; ctx is that of the function.
func registerStream(t *testing.T, name string, next func(ctx context.Context, n int) (rows int64, err error)) {
	t.Helper()
	register(t, name, func(ctx context.Context, b *cdevice.RecordBatch) (*cdevice.RecordReader, error) {
		b.Retain()
		n := 0
		return cdevice.NewRecordReaderFunc(context.Background(), b.Schema(), b.DeviceID().Type, func(context.Context) (*cdevice.RecordBatch, error) {
			n++
			rows, err := next(ctx, n)
			if err != nil {
				return nil, err
			}
			return b.Slice(0, rows)
		}, b.Release)
	})
}

// readNext reads a batch of so many rows of a stream, and releases it.
func readNext(t *testing.T, stream replied, rows int64) {
	t.Helper()
	next := ask(t, ".next", own1(stream.handle)).value.(replied)
	assert.Equal(t, rows, next.rows)
	server{}.Release(next.handle)
}

// request makes a request. Its arguments are values that encoder.value accepts, and arrows.
func request(t testing.TB, name string, args ...any) []byte {
	t.Helper()
	var e encoder
	e.count(wireList, len(args)+1)
	require.NoError(t, e.value(name))
	for _, arg := range args {
		if a, ok := arg.(arrows); ok {
			e.data = append(e.data, wireArrow, byte(a.form))
			for _, n := range a.numbers {
				e.int64(n)
			}
			continue
		}
		require.NoError(t, e.value(arg))
	}
	return e.data
}

// arrows is an Arrow object of a request.
type arrows struct {
	form    form
	numbers []int64
}

func own1(handle uint64) arrows { return arrows{formObject, []int64{int64(handle)}} }

// reply is a decoded reply.
type reply struct {
	value      any
	kind, text string
	errno      syscall.Errno
}

// object is an object of a reply.
type replied struct {
	kind   byte
	handle uint64
	rows   int64
}

func decodeReply(t *testing.T, data []byte) reply {
	t.Helper()
	require.NotEmpty(t, data)
	d := decoder{data: data[1:]}
	if data[0] == wireError {
		kind, err := d.text()
		require.NoError(t, err)
		text, err := d.text()
		require.NoError(t, err)
		code, err := d.uint32()
		require.NoError(t, err)
		return reply{kind: kind, text: text, errno: syscall.Errno(code)}
	}
	require.EqualValues(t, wireResult, data[0])
	if d.data[0] == wireObject {
		return reply{value: replied{d.data[1], binary.LittleEndian.Uint64(d.data[2:]), int64(binary.LittleEndian.Uint64(d.data[22:]))}}
	}
	v, err := d.value()
	require.NoError(t, err)
	require.Empty(t, d.data)
	return reply{value: v}
}

// callInMain is a call of the thread that signals interrupt.
func callInMain(request []byte, wait time.Duration) (int64, []byte) {
	var r copied
	number := server{}.Call(request, capi.Caller{Main: true}, wait, &r)
	return number, r.data
}

func waitFor(number int64, wait time.Duration) (int64, []byte) {
	var r copied
	still := server{}.Wait(number, wait, &r)
	return still, r.data
}

type copied struct{ data []byte }

func (r *copied) Put(data []byte) { r.data = append([]byte{}, data...) }

// ask performs a call that ends in time.
func ask(t *testing.T, name string, args ...any) reply {
	t.Helper()
	number, data := callInMain(request(t, name, args...), time.Minute)
	require.Zero(t, number)
	return decodeReply(t, data)
}

// newBatch is a batch of one column.
func newBatch(t testing.TB, values ...int64) *cdevice.RecordBatch {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).AppendValues(values, nil)
	batch, err := wrapped(b.NewRecordBatch())
	require.NoError(t, err)
	return batch
}

// exported is a record batch as ArrowDeviceArray and ArrowSchema in memory of C.
func exported(t *testing.T, values ...int64) arrows {
	t.Helper()
	batch := newBatch(t, values...)
	defer batch.Release()
	return exportedObject(t, &object{kind: kindBatch, batch: batch})
}

func exportedArray(t *testing.T, a *cdevice.Array) arrows {
	t.Helper()
	return exportedObject(t, &object{kind: kindArray, array: a})
}

func exportedObject(t *testing.T, o *object) arrows {
	t.Helper()
	var at structs
	for _, w := range []cStruct{schemaStruct, deviceArrayStruct} {
		p, err := capi.Allocate(w.size)
		require.NoError(t, err)
		at = append(at, p)
	}
	t.Cleanup(at.free)
	require.NoError(t, o.exportDeviceArray(at))
	return arrows{formDeviceArray, []int64{int64(at[0]), int64(at[1])}}
}

// nothingIsLeft checks the counts at the end of a test.
func nothingIsLeft(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	objects := live.Load()
	t.Cleanup(func() {
		assert.Eventually(t, func() bool { return live.Load() == objects && running.Load() == 0 }, 30*time.Second, time.Millisecond)
		calls.mu.Lock()
		defer calls.mu.Unlock()
		assert.Empty(t, calls.byNumber)
	})
}
