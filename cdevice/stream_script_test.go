package cdevice_test

import (
	"errors"
	"io"
	"iter"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// script is another library's stream: what its callbacks do, a test writes, and how often
// they are called is counted. Its device is the CPU.
type script struct {
	*arena
	getSchema func(out *abi.ArrowSchema) int
	getNext   func(call int, out *abi.ArrowDeviceArray) int // calls count from 0
	text      string                                        // of get_last_error; "" is NULL
	onRelease func()                                        // may be nil

	schemas, nexts, errors, releases atomic.Int64
	inside                           atomic.Int64
	overlapped                       atomic.Bool
	stream                           *cdevice.CArrowDeviceArrayStream
	plain                            *cdata.CArrowArrayStream // of newPlainScript, in place of stream
}

// newScript is a stream of batches: get_next gives each, and then the end. When the test
// ends, it was released once, and no two callbacks ran at the same time.
func newScript(t testing.TB, batches ...*cdevice.RecordBatch) *script {
	t.Helper()
	s := scriptOf(t, batches)
	s.stream = new(cdevice.CArrowDeviceArrayStream)
	bridge.ExportStream(s, int32(device.CPU), abi.As[abi.ArrowDeviceArrayStream](s.stream))
	t.Cleanup(func() { assert.Zero(t, s.stream.Release, "the struct is marked released") })
	return s
}

// newPlainScript is newScript for an ArrowArrayStream: of what getNext writes, only the
// array reaches the consumer.
func newPlainScript(t testing.TB, batches ...*cdevice.RecordBatch) *script {
	t.Helper()
	s := scriptOf(t, batches)
	s.plain = new(cdata.CArrowArrayStream)
	bridge.ExportPlainStream(s, plainStream(s.plain))
	t.Cleanup(func() { assert.Zero(t, plainStream(s.plain).Release, "the struct is marked released") })
	return s
}

func scriptOf(t testing.TB, batches []*cdevice.RecordBatch) *script {
	t.Helper()
	s := &script{arena: newArena()}
	schema := arrow.NewSchema(nil, nil)
	if len(batches) > 0 {
		schema = batches[0].Schema()
	}
	s.getSchema = func(out *abi.ArrowSchema) int {
		if cdevice.ExportSchema(schema, cdevice.SchemaFromPtr(addressOf(out))) != nil {
			return 5
		}
		return 0
	}
	s.getNext = func(call int, out *abi.ArrowDeviceArray) int {
		if call < len(batches) {
			if cdevice.ExportRecordBatch(batches[call], abi.As[cdevice.CArrowDeviceArray](out), nil) != nil {
				return 5
			}
			return 0
		}
		*out = *abi.As[abi.ArrowDeviceArray](garbageArray())
		out.Array.Release = 0
		return 0
	}
	t.Cleanup(func() {
		assert.EqualValues(t, 1, s.releases.Load(), "calls of release")
		assert.False(t, s.overlapped.Load(), "two callbacks at the same time")
		s.free()
	})
	return s
}

func (s *script) enter(count *atomic.Int64) (call int) {
	if s.inside.Add(1) != 1 {
		s.overlapped.Store(true)
	}
	return int(count.Add(1) - 1)
}

func (s *script) leave() { s.inside.Add(-1) }

func (s *script) GetSchema(out *abi.ArrowSchema) int {
	s.enter(&s.schemas)
	defer s.leave()
	return s.getSchema(out)
}

func (s *script) GetNext(out uintptr) int {
	call := s.enter(&s.nexts)
	defer s.leave()
	if s.plain == nil {
		return s.getNext(call, abi.At[abi.ArrowDeviceArray](out))
	}
	var array abi.ArrowDeviceArray
	code := s.getNext(call, &array)
	*abi.At[abi.ArrowArray](out) = array.Array
	return code
}

func (s *script) GetLastError() uintptr {
	s.enter(&s.errors)
	defer s.leave()
	if s.text == "" {
		return 0
	}
	return s.cString(s.text)
}

func (s *script) Release() {
	if s.onRelease != nil {
		s.onRelease()
	}
	s.releases.Add(1)
}

// failing makes the call-th get_next return a code.
func (s *script) failing(call, code int, text string) *script {
	next := s.getNext
	s.text = text
	s.getNext = func(c int, out *abi.ArrowDeviceArray) int {
		if c == call {
			*out = *abi.As[abi.ArrowDeviceArray](garbageArray()) // an error leaves nothing that may be looked at
			return code
		}
		return next(c, out)
	}
	return s
}

// reader imports the stream; it is released at the end of the test.
func (s *script) reader(t testing.TB, opts ...cdevice.ImportOption) *cdevice.RecordReader {
	t.Helper()
	r, err := cdevice.ImportRecordReader(s.stream, opts...)
	require.NoError(t, err)
	t.Cleanup(r.Release)
	return r
}

// plainReader imports the stream of newPlainScript; it is released at the end of the test.
func (s *script) plainReader(t testing.TB, opts ...cdevice.ImportOption) *cdevice.RecordReader {
	t.Helper()
	r, err := cdevice.ImportPlainRecordReader(s.plain, opts...)
	require.NoError(t, err)
	t.Cleanup(r.Release)
	return r
}

// plainStream and plainArray see a struct of cdata's as the tests of this package do.
func plainStream(s *cdata.CArrowArrayStream) *abi.ArrowArrayStream {
	return (*abi.ArrowArrayStream)(unsafe.Pointer(s))
}

func plainArray(a *cdata.CArrowArray) *abi.ArrowArray { return (*abi.ArrowArray)(unsafe.Pointer(a)) }

// numbered are batches of one row with their number in it.
func numbered(t testing.TB, n int) []*cdevice.RecordBatch {
	t.Helper()
	batches := make([]*cdevice.RecordBatch, n)
	for i := range batches {
		batches[i] = numberedBatch(t, i)
		t.Cleanup(batches[i].Release)
	}
	return batches
}

var numberedSchema = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)

func numberedRecord(n int) arrow.RecordBatch {
	b := array.NewRecordBuilder(offHeap, numberedSchema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(int64(n))
	return b.NewRecordBatch()
}

func numberedBatch(t testing.TB, n int) *cdevice.RecordBatch {
	t.Helper()
	rec := numberedRecord(n)
	defer rec.Release()
	b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	return b
}

// numberOf reads a batch of numbered.
func numberOf(t testing.TB, b *cdevice.RecordBatch) int {
	t.Helper()
	view, err := b.HostView(background)
	require.NoError(t, err)
	defer view.Release()
	return int(view.Column(0).(*array.Int64).Value(0))
}

// numbersOf reads a reader to its end.
func numbersOf(t testing.TB, all iter.Seq2[*cdevice.RecordBatch, error]) (numbers []int, err error) {
	t.Helper()
	for b, err := range all {
		if err != nil {
			assert.Nil(t, b)
			return numbers, err
		}
		numbers = append(numbers, numberOf(t, b))
	}
	return numbers, nil
}

func upTo(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}

// yielding is an iterator over batches, and then, unless it is nil, an error.
func yielding(err error, batches ...*cdevice.RecordBatch) iter.Seq2[*cdevice.RecordBatch, error] {
	return func(yield func(*cdevice.RecordBatch, error) bool) {
		for _, b := range batches {
			if !yield(b, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

var errSource = errors.New("the source is on fire")

// nextOf is a function over the same, for NewRecordReaderFunc.
func nextOf(err error, batches ...*cdevice.RecordBatch) func() (*cdevice.RecordBatch, error) {
	at := 0
	return func() (*cdevice.RecordBatch, error) {
		if at == len(batches) {
			if err != nil {
				return nil, err
			}
			return nil, io.EOF
		}
		at++
		batches[at-1].Retain()
		return batches[at-1], nil
	}
}
