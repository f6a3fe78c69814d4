package flight_test

import (
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	arrowflight "github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/flight"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// together is one record batch of the rows of several.
func together(t testing.TB, recs []arrow.RecordBatch) arrow.RecordBatch {
	table := array.NewTableFromRecords(recs[0].Schema(), recs)
	defer table.Release()
	columns := make([]arrow.Array, table.NumCols())
	for i := range columns {
		var err error
		columns[i], err = array.Concatenate(table.Column(i).Data().Chunks(), memory.DefaultAllocator)
		require.NoError(t, err)
	}
	return array.NewRecordBatch(recs[0].Schema(), columns, table.NumRows())
}

// A batch that is too large for a plain client of arrow-go, with gRPC's default limit, is sent in several parts.
func TestLargeBatchesForPlainClients(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	large := numbers(t, 0, 1_000_000)
	client := serve(t, echo(t, host(t), []arrow.RecordBatch{large}), flight.ServerOptions()...)
	stream, err := client.DoGet(t.Context(), ticket())
	require.NoError(t, err)
	rdr, err := arrowflight.NewRecordReader(stream)
	require.NoError(t, err)
	defer rdr.Release()
	var got []arrow.RecordBatch
	for rdr.Next() {
		rec := rdr.RecordBatch()
		rec.Retain()
		got = append(got, rec)
	}
	require.NoError(t, rdr.Err())
	assert.Greater(t, len(got), 5)
	assert.Less(t, len(got), 20)
	assert.True(t, array.RecordEqual(large, together(t, got)))
}

// Rows of every type are cut into messages of a few hundred bytes, and are the same together.
func TestEveryTypeInParts(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	client := serve(t, echo(t, host(t), nil), flight.ServerOptions()...)
	for _, c := range cases.All() {
		t.Run(c.Name, func(t *testing.T) {
			arr, err := c.Array(memory.DefaultAllocator, cases.Nulls)
			require.NoError(t, err)
			many := make([]arrow.Array, 200)
			for i := range many {
				many[i] = arr
			}
			if arr.DataType().ID() == arrow.RUN_END_ENCODED || arr.DataType().ID() == arrow.EXTENSION {
				many = many[:1] // arrow-go does not concatenate them all
			}
			if all, err := array.Concatenate(many, memory.DefaultAllocator); err == nil {
				arr = all
			}
			s := arrow.NewSchema([]arrow.Field{{Name: "c", Type: arr.DataType(), Nullable: true}}, nil)
			rec := array.NewRecordBatch(s, []arrow.Array{arr}, int64(arr.Len()))
			r := readerOf(t, device.CPUDevice(), s, rec)
			defer r.Release()
			answers, err := flight.DoExchange(t.Context(), client, descriptor(), r, flight.WithMaxMessageSize(2000))
			require.NoError(t, err)
			got, err := collect(answers)
			require.NoError(t, err)
			at := int64(0)
			for _, part := range got {
				want := rec.NewSlice(at, at+part.NumRows())
				require.True(t, array.RecordEqual(want, part), "rows from %d\n%v\n%v", at, want, part)
				at += part.NumRows()
			}
			assert.Equal(t, rec.NumRows(), at)
			t.Logf("%d rows in %d parts", at, len(got))
		})
	}
}

// All parts have the metadata of their batch.
func TestPartsHaveTheMetadata(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	client := serve(t, echo(t, host(t), nil), flight.ServerOptions()...)
	md := arrow.NewMetadata([]string{"key", flight.AppMetadataKey}, []string{"value", "of the app"})
	bare, err := cdevice.WrapRecordBatch(numbers(t, 0, 1000), device.CPUDevice())
	require.NoError(t, err)
	with := bare.WithMetadata(md)
	bare.Release()
	defer with.Release()
	r, err := cdevice.NewRecordReader(schema, device.CPU, func(yield func(*cdevice.RecordBatch, error) bool) { yield(with, nil) })
	require.NoError(t, err)
	defer r.Release()
	answers, err := flight.DoExchange(t.Context(), client, descriptor(), r, flight.WithMaxMessageSize(5000))
	require.NoError(t, err)
	defer answers.Release()
	n := 0
	for b, err := range answers.All() {
		require.NoError(t, err)
		assert.Equal(t, md.ToMap(), b.Metadata().ToMap())
		n++
	}
	assert.Greater(t, n, 3)
}

// A row or dictionary that cannot be split is an error, and so is a received message that is too large.
func TestTooLarge(t *testing.T) {
	cdevicetest.CheckLeaks(t)
	long := strings.Repeat("long", 5000)
	text := arrow.NewSchema([]arrow.Field{{Name: "s", Type: arrow.BinaryTypes.String}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, text)
	b.Field(0).(*array.StringBuilder).AppendValues([]string{"short", long, "short"}, nil)
	row := b.NewRecordBatch()
	words := make([]string, 100)
	for i := range words {
		words[i] = fmt.Sprint(long[:100], i)
	}
	_, dictionary := dictionaries(t, strings.Join(words, " "))
	for name, rec := range map[string]arrow.RecordBatch{"a row": row, "in one row or dictionary": dictionary[0]} {
		t.Run("sent: "+name, func(t *testing.T) {
			client := serve(t, echo(t, host(t), []arrow.RecordBatch{rec}, flight.WithMaxMessageSize(10_000)), flight.ServerOptions()...)
			r, err := flight.DoGet(t.Context(), client, ticket())
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
		r, err := flight.DoGet(t.Context(), client, ticket(), flight.WithMaxMessageSize(10_000))
		require.NoError(t, err)
		_, err = collect(r)
		assert.Equal(t, codes.ResourceExhausted, status.Code(err), "%v", err) // by grpc
	})
	t.Run("received by a server", func(t *testing.T) {
		client := serve(t, echo(t, host(t), nil, flight.WithMaxMessageSize(10_000)), flight.ServerOptions()...)
		r := readerOf(t, device.CPUDevice(), text, row)
		defer r.Release()
		err := flight.DoPut(t.Context(), client, descriptor(), r)
		assert.ErrorContains(t, err, "WithMaxMessageSize")
		assert.Equal(t, codes.InvalidArgument, status.Code(err))
	})
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

// Where arrow-go's writer panics, here for offsets that were not validated, sending is an error.
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
