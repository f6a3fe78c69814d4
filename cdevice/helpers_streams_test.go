package cdevice_test

import (
	"iter"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
)

// script is another library's stream: a test supplies its callbacks, and their calls are counted.
// Its device is the CPU.
type script struct {
	*arena
	getSchema func(out *abi.ArrowSchema) int
	getNext   func(call int, out *abi.ArrowDeviceArray) int // calls count from 0
	text      string                                        // of get_last_error; "" is NULL
	onRelease func()                                        // may be nil

	schemas, nexts, errors, releases atomic.Int64
	inside                           atomic.Int64
	overlapped                       atomic.Bool
	c                                cStream
	stream                           *cdevice.CArrowDeviceArrayStream // c, if it is a device struct
}

// newScript is a device stream of batches: get_next gives each, and then the end. When the test ends, it was released
// once, and no two callbacks ran at the same time.
func newScript(t testing.TB, batches ...*cdevice.RecordBatch) *script {
	t.Helper()
	return deviceKind.script(t, batches...)
}

// script is newScript for either struct: of getNext's device array, only the array reaches the consumer of a plain one.
func (k kind) script(t testing.TB, batches ...*cdevice.RecordBatch) *script {
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
		assert.Zero(t, s.c.callbacks().Release, "the struct is marked released")
		assert.EqualValues(t, 1, s.releases.Load(), "calls of release")
		assert.False(t, s.overlapped.Load(), "two callbacks at the same time")
		s.free()
	})
	s.c = k.newStream()
	if d, ok := s.c.(streamOf[cdevice.CArrowDeviceArrayStream]); ok {
		s.stream = d.at
		bridge.ExportStream(s, int32(device.CPU), abi.As[abi.ArrowDeviceArrayStream](s.stream))
	} else {
		bridge.ExportPlainStream(s, s.c.callbacks())
	}
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
	if s.stream != nil {
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
	r, err := s.c.importRecords(opts...)
	require.NoError(t, err)
	t.Cleanup(r.Release)
	return r
}

// changing makes the call-th get_next change its array.
func (s *script) changing(call int, change func(*abi.ArrowDeviceArray)) *script {
	next := s.getNext
	s.getNext = func(c int, out *abi.ArrowDeviceArray) int {
		code := next(c, out)
		if c == call {
			change(out)
		}
		return code
	}
	return s
}

// numberedSchema is the schema of numbered batches.
var numberedSchema = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)

// numberedRecord is a record batch of arrow-go with n in its only row.
func numberedRecord(n int) arrow.RecordBatch {
	b := array.NewRecordBuilder(offHeap, numberedSchema)
	defer b.Release()
	b.Field(0).(*array.Int64Builder).Append(int64(n))
	return b.NewRecordBatch()
}

// numberedBatch is a batch of one row with n in it, which the caller releases.
func numberedBatch(t testing.TB, n int) *cdevice.RecordBatch {
	t.Helper()
	rec := numberedRecord(n)
	defer rec.Release()
	b, err := cdevice.WrapRecordBatch(rec, device.CPUDevice())
	require.NoError(t, err)
	return b
}

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

// numberOf reads a batch of numbered.
func numberOf(t testing.TB, b *cdevice.RecordBatch) int {
	t.Helper()
	view, err := b.HostView(background)
	require.NoError(t, err)
	defer view.Release()
	return int(view.Column(0).(*array.Int64).Value(0))
}

// numberIn reads a record of numberedRecord.
func numberIn(rec arrow.RecordBatch) int { return int(rec.Column(0).(*array.Int64).Value(0)) }

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

// upTo returns 0, 1, ... n-1: the values that numbersOf reads of numbered.
func upTo(n int) []int {
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	return numbers
}
