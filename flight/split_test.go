package flight_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// requireParts fails unless the batches are parts of a record batch, in its order, and have all its rows.
func requireParts(t testing.TB, rec arrow.RecordBatch, parts []arrow.RecordBatch) {
	t.Helper()
	at := int64(0)
	for _, part := range parts {
		want := rec.NewSlice(at, at+part.NumRows())
		require.True(t, array.RecordEqual(want, part), "rows from %d\n%v\n%v", at, want, part)
		at += part.NumRows()
	}
	assert.Equal(t, rec.NumRows(), at)
}

// A batch that is too large for a plain client of arrow-go, with gRPC's default limit, is sent in several parts.
func TestLargeBatchesForPlainClients(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	large := numbers(t, 0, 1_000_000)
	client := serve(t, echo(t, host(t), []arrow.RecordBatch{large}), flight.ServerOptions()...)
	stream, err := client.DoGet(t.Context(), ticket())
	require.NoError(t, err)
	got, err := readPlain(stream)
	require.NoError(t, err)
	assert.Greater(t, len(got), 5)
	assert.Less(t, len(got), 20)
	requireParts(t, large, got)
}

// Rows of every type are cut into messages of a few hundred bytes, and are the same together.
func TestEveryTypeInParts(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	client := serve(t, echo(t, host(t), nil), flight.ServerOptions()...)
	for _, c := range cases.All() {
		t.Run(c.Name, func(t *testing.T) {
			arr, err := c.Array(memory.DefaultAllocator, cases.Nulls)
			require.NoError(t, err)
			many := slices.Repeat([]arrow.Array{arr}, 200)
			if arr.DataType().ID() == arrow.RUN_END_ENCODED || arr.DataType().ID() == arrow.EXTENSION {
				many = many[:1] // arrow-go does not concatenate them all
			}
			if all, err := array.Concatenate(many, memory.DefaultAllocator); err == nil {
				arr = all
			}
			rec := recordOfColumn(arr)
			r := readerOf(t, device.CPUDevice(), rec.Schema(), rec)
			answers, err := exchange(t, client, r, flight.WithMaxMessageSize(2000))
			require.NoError(t, err)
			got, err := collect(answers)
			require.NoError(t, err)
			requireParts(t, rec, got)
			t.Logf("%d rows in %d parts", rec.NumRows(), len(got))
		})
	}
}

// A row or dictionary that cannot be split is an error, and so is a received message that is too large.
func TestTooLarge(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	long := strings.Repeat("long", 5000)
	row := recordOfColumn(fromJSON(t, arrow.BinaryTypes.String, `["short", "`+long+`", "short"]`))
	words := make([]string, 100)
	for i := range words {
		words[i] = fmt.Sprint(long[:100], i)
	}
	_, dictionary := dictionaries(t, strings.Join(words, " "))
	for name, rec := range map[string]arrow.RecordBatch{"a row": row, "in one row or dictionary": dictionary[0]} {
		t.Run("sent: "+name, func(t *testing.T) {
			client := serve(t, echo(t, host(t), []arrow.RecordBatch{rec}, flight.WithMaxMessageSize(10_000)), flight.ServerOptions()...)
			r, err := get(client, "")
			if err == nil {
				_, err = collect(r)
			}
			assert.ErrorContains(t, err, name)
			assert.ErrorContains(t, err, "WithMaxMessageSize")
			assert.Equal(t, codes.InvalidArgument, status.Code(err))
		})
	}
	t.Run("received by a client", func(t *testing.T) {
		client := serve(t, echo(t, host(t), []arrow.RecordBatch{row}), flight.ServerOptions()...)
		r, err := get(client, "", flight.WithMaxMessageSize(10_000))
		require.NoError(t, err)
		_, err = collect(r)
		assert.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err) // by grpc
	})
	t.Run("received by a server", func(t *testing.T) {
		client := serve(t, echo(t, host(t), nil, flight.WithMaxMessageSize(10_000)), flight.ServerOptions()...)
		_, err := put(t, client, readerOf(t, device.CPUDevice(), row.Schema(), row))
		assert.ErrorContains(t, err, "WithMaxMessageSize")
		assert.Equal(t, codes.InvalidArgument, status.Code(err))
	})
}

// A slice of list views with nulls, on which arrow-go's writer panics, is copied.
func TestSliceOfListViewsWithNulls(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	lists := array.NewListViewBuilder(memory.DefaultAllocator, arrow.PrimitiveTypes.Int32)
	defer lists.Release()
	for i := range 300_000 { // more than fit into one message
		if i%3 == 0 {
			lists.AppendNull()
			continue
		}
		lists.AppendWithSize(true, 1)
		lists.ValueBuilder().(*array.Int32Builder).Append(int32(i))
	}
	whole := lists.NewArray()
	arr := array.NewSlice(whole, 1, int64(whole.Len()))
	rec := recordOfColumn(arr)
	client := serve(t, echo(t, host(t), []arrow.RecordBatch{rec}), flight.ServerOptions()...)
	r, err := get(client, "")
	require.NoError(t, err)
	got, err := collect(r)
	require.NoError(t, err)
	requireParts(t, rec, got)
}

// Where arrow-go's writer panics, here for offsets that were not validated, sending is an error.
func TestWriterPanicsOnOffsets(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	const rows = 1000
	offsets := make([]int64, rows+1)
	for i := range offsets {
		offsets[i] = int64(i)
	}
	offsets[1] = 1 << 30
	buffers := []*memory.Buffer{nil, memory.NewBufferBytes(numbersOf(4, offsets...)), memory.NewBufferBytes(make([]byte, rows))}
	data := array.NewData(arrow.BinaryTypes.Binary, rows, buffers, nil, 0, 0)
	rec := recordOfColumn(array.NewSlice(array.NewBinaryData(data), 1, rows))
	client := serve(t, echo(t, host(t), nil), flight.ServerOptions()...)
	_, err := put(t, client, readerOf(t, device.CPUDevice(), rec.Schema(), rec), flight.WithMaxMessageSize(3000))
	assert.ErrorContains(t, err, "panic in arrow-go's IPC writer: ")
}
