package flight_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// What attacks with programs have found.

// twice is the messages of a schema, a dictionary and two batches.
func twice(t *testing.T, opts ...ipc.Option) []*arrowflight.FlightData {
	_, recs := dictionaries(t, "a b c d e f g h", "a b c d e f g h")
	m := record(t, recs, opts...)
	require.Len(t, m, 4)
	return m
}

// A batch on which arrow-go's reader panics, behind a good one, keeps no memory of the allocator: arrow-go does not
// release the dictionary, which it has used by then.
func TestNothingIsLeftOfADictionary(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for name, opts := range map[string][]ipc.Option{"plain": nil, "zstd": {ipc.WithZstd()}} {
		m := twice(t, opts...)
		header := m[3].DataHeader
		found := 0
		for at := 0; at+16 <= len(header); at += 4 { // pairs of offset and length of its buffers
			length := binary.LittleEndian.Uint64(header[at+8:])
			if length == 0 || length > uint64(len(m[3].DataBody)) || binary.LittleEndian.Uint64(header[at:]) > 64 {
				continue
			}
			m[3].DataHeader = bytes.Clone(header)
			binary.LittleEndian.PutUint64(m[3].DataHeader[at+8:], 0)
			err := play(t, marshal(t, m)) // which fails the test if memory is left
			if err != nil {
				assert.ErrorIs(t, err, arrow.ErrInvalid, name)
				found++
			}
		}
		assert.NotZero(t, found, name)
	}
}

// A peer cannot make a dictionary grow without a bound.
func TestDeltasAreBounded(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	var r recorder
	words := ""
	s, _ := dictionaries(t, "a")
	w := arrowflight.NewRecordWriter(&r, ipc.WithSchema(s), ipc.WithDictionaryDeltas(true))
	for i := range 100 {
		words += fmt.Sprintf(" word%0200d", i)
		_, recs := dictionaries(t, words[1:])
		require.NoError(t, w.Write(recs[0]))
	}
	require.NoError(t, w.Close())
	assert.NoError(t, play(t, marshal(t, r.messages)))
	assert.ErrorContains(t, play(t, marshal(t, r.messages), flight.WithMaxMessageSize(10_000)), "with their deltas, of at most 10000 (WithMaxMessageSize)")
}

// Columns have the length of their batch, also where that is 0.
func TestLengthsOfColumns(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	for _, rows := range []int64{0, 3, 5} {
		m := record(t, []arrow.RecordBatch{numbers(t, 0, 4)})
		header := m[1].DataHeader
		message := binary.LittleEndian.AppendUint64(nil, 4)
		at := bytes.Index(header, message)
		changedOne := false
		for ; at >= 0; at = next(header, message, at) { // the length of the batch is one of these
			m[1].DataHeader = bytes.Clone(header)
			binary.LittleEndian.PutUint64(m[1].DataHeader[at:], uint64(rows))
			err := play(t, marshal(t, m))
			changedOne = changedOne || err != nil && err.Error() == fmt.Sprintf("flight: RecordBatch.nodes[0]: length 4, want %d as the batch: invalid", rows)
		}
		assert.True(t, changedOne, rows)
	}
}

func next(b, of []byte, at int) int {
	i := bytes.Index(b[at+1:], of)
	if i < 0 {
		return -1
	}
	return at + 1 + i
}

// The answers end with the error of the source, even if that is one of a context which is not the call's.
func TestExchangeWithACancelledSource(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	client := serve(t, echo(t, host(t), nil), flight.ServerOptions()...)
	for _, cause := range []error{context.Canceled, fmt.Errorf("upstream: %w", context.Canceled), context.DeadlineExceeded} {
		r := source(t, func(_ context.Context, i int) (arrow.RecordBatch, error) {
			if i == 2 {
				return nil, cause
			}
			return numbers(t, 0, 4), nil
		}, nil)
		answers, err := flight.DoExchange(t.Context(), client, descriptor(), r)
		r.Release()
		within.Seconds(t, "the end of the answers", func() error {
			if err == nil { // else it came before the schema
				_, err = collect(answers)
			}
			if !errors.Is(err, cause) {
				return fmt.Errorf("%w, want %w", err, cause)
			}
			return nil
		})
	}
}

// A slice of list views with nulls, on which arrow-go's writer panics, is copied.
func TestSliceOfListViewsWithNulls(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	lists := array.NewListViewBuilder(memory.DefaultAllocator, arrow.PrimitiveTypes.Int32)
	defer lists.Release()
	for i := range 300_000 {
		if i%3 == 0 {
			lists.AppendNull()
			continue
		}
		lists.AppendWithSize(true, 1)
		lists.ValueBuilder().(*array.Int32Builder).Append(int32(i))
	}
	whole := lists.NewArray()
	arr := array.NewSlice(whole, 1, int64(whole.Len()))
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "l", Type: arr.DataType(), Nullable: true}}, nil), []arrow.Array{arr}, int64(arr.Len()))
	client := serve(t, echo(t, host(t), []arrow.RecordBatch{rec}), flight.ServerOptions()...)
	r, err := flight.DoGet(t.Context(), client, ticket())
	require.NoError(t, err)
	got, err := collect(r)
	require.NoError(t, err)
	rows := int64(0)
	for _, part := range got {
		assert.True(t, array.RecordEqual(rec.NewSlice(rows, rows+part.NumRows()), part))
		rows += part.NumRows()
	}
	assert.Equal(t, rec.NumRows(), rows)
}

// Where arrow-go's writer panics, here for offsets that nobody has validated, sending is an error.
func TestWriterPanicsOnOffsets(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	const rows = 1000
	offsets := make([]byte, 4*(rows+1))
	for i := range rows + 1 {
		binary.LittleEndian.PutUint32(offsets[4*i:], uint32(i))
	}
	binary.LittleEndian.PutUint32(offsets[4:], 1<<30)
	data := array.NewData(arrow.BinaryTypes.Binary, rows, []*memory.Buffer{nil, memory.NewBufferBytes(offsets), memory.NewBufferBytes(make([]byte, rows))}, nil, 0, 0)
	arr := array.NewSlice(array.NewBinaryData(data), 1, rows)
	rec := array.NewRecordBatch(arrow.NewSchema([]arrow.Field{{Name: "b", Type: arr.DataType()}}, nil), []arrow.Array{arr}, rows-1)
	client := serve(t, echo(t, host(t), nil), flight.ServerOptions()...)
	r := readerOf(t, device.CPUDevice(), rec.Schema(), rec)
	defer r.Release()
	err := flight.DoPut(t.Context(), client, descriptor(), r, flight.WithMaxMessageSize(3000))
	assert.ErrorContains(t, err, "panic in arrow-go's IPC writer: ")
}

// io.EOF of a function of the program is its error, and no end of the stream. A panic in it is not the peer's fault.
func TestMetadataFuncOfAProgram(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := []*arrowflight.FlightData{nil, {AppMetadata: []byte(" ")}, nil}
	data := record(t, []arrow.RecordBatch{numbers(t, 0, 4)})
	m[0], m[2] = data[0], data[1]
	for name, f := range map[string]func([]byte) error{
		"flight: the function of WithMetadataFunc: EOF":            func([]byte) error { return io.EOF },
		"flight: the function of WithMetadataFunc: wrapped: EOF":   func([]byte) error { return fmt.Errorf("wrapped: %w", io.EOF) },
		"flight: panic in the function of WithMetadataFunc: broke": func([]byte) error { panic("broke") },
		"flight: panic in the function of WithMetadataFunc: runtime error: invalid memory address or nil pointer dereference": func([]byte) error {
			return (*flight.Error)(nil) // no nil error
		},
	} {
		err := play(t, marshal(t, m), flight.WithMetadataFunc(f))
		assert.EqualError(t, err, name)
		assert.NotErrorIs(t, err, arrow.ErrInvalid)
		assert.Equal(t, codes.Unknown, status.Code(err))
	}
}

// A body without a header is not skipped, and a schema that arrow-go refuses is an error of this package.
func TestStrangeMessages(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	m := record(t, []arrow.RecordBatch{numbers(t, 0, 4)})
	m[1].DataHeader = nil
	assert.ErrorContains(t, play(t, marshal(t, m)), "FlightData.data_header: absent, beside a body of")
	m = record(t, []arrow.RecordBatch{numbers(t, 0, 4)})
	header := m[0].DataHeader
	for at := range header {
		m[0].DataHeader = bytes.Clone(header)
		m[0].DataHeader[at] ^= 0x41
		if err := play(t, marshal(t, m)); err != nil && !errors.Is(err, arrow.ErrNotImplemented) {
			assert.ErrorIs(t, err, arrow.ErrInvalid, "byte %d", at)
			assert.Equal(t, codes.InvalidArgument, status.Code(err), "byte %d: %v", at, err)
		}
	}
}

// Errors of arguments have a code, too.
func TestCodesOfArguments(t *testing.T) {
	r := readerOf(t, device.CPUDevice(), schema)
	defer r.Release()
	_, err := flight.DoGet(t.Context(), nil, ticket())
	assert.Equal(t, codes.InvalidArgument, status.Code(err))
	assert.Equal(t, codes.InvalidArgument, status.Code(flight.Send(nil, r)))
}

// Memory of dictionaries that arrow-go does not release is found by the garbage collector.
func TestDictionariesOfBrokenStreamsAreCollected(t *testing.T) {
	m := twice(t)
	m[3].DataHeader = m[3].DataHeader[:len(m[3].DataHeader)-1]
	m[1].DataBody = append(m[1].DataBody, make([]byte, 1<<20)...)
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 100 {
		_ = play(t, marshal(t, m))
	}
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		runtime.GC()
		runtime.ReadMemStats(&after)
		if after.HeapAlloc < before.HeapAlloc+20<<20 {
			return
		}
	}
	assert.Less(t, after.HeapAlloc, before.HeapAlloc+20<<20)
}
