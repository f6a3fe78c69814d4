package adbc

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
)

const rowsOfBatch = 50

// wide is the i-th batch of a stream, with columns of four types, in memory of the Go heap.
func wide(columns, i int) arrow.RecordBatch {
	types := []arrow.DataType{
		arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String, arrow.PrimitiveTypes.Float64, arrow.BinaryTypes.Binary,
	}
	fields := make([]arrow.Field, columns)
	for c := range fields {
		fields[c] = arrow.Field{Name: fmt.Sprintf("c%d", c), Type: types[c%len(types)], Nullable: true}
	}
	b := array.NewRecordBuilder(memory.NewGoAllocator(), arrow.NewSchema(fields, nil))
	defer b.Release()
	for c, column := range b.Fields() {
		for row := i * rowsOfBatch; row < (i+1)*rowsOfBatch; row++ {
			switch column := column.(type) {
			case *array.Int64Builder:
				column.Append(int64(row + c))
			case *array.StringBuilder:
				column.Append(text(row, c))
			case *array.Float64Builder:
				column.Append(float64(row) + 0.5)
			case *array.BinaryBuilder:
				column.Append([]byte(text(row, c)))
			}
		}
	}
	return b.NewRecordBatch()
}

func text(row, column int) string { return strings.Repeat("text ", row%5) + fmt.Sprint(row+column) }

// batches are n of them, and then an error unless it is nil.
func batches(columns, n int, then error) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		for i := range n {
			if !yield(wide(columns, i), nil) {
				return
			}
		}
		if then != nil {
			yield(nil, then)
		}
	}
}

// ingest is a statement that makes a table, with the batches of a reader bound.
func ingest(t testing.TB, c adbc.Connection, table string, columns int, from iter.Seq2[arrow.RecordBatch, error]) adbc.Statement {
	t.Helper()
	one := wide(columns, 0)
	defer one.Release()
	r := array.ReaderFromIter(one.Schema(), from)
	t.Cleanup(r.Release)
	s, err := c.NewStatement()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.SetOption(adbc.OptionKeyIngestTargetTable, table))
	require.NoError(t, s.BindStream(t.Context(), r))
	return s
}

// collect runs the garbage collector until the test ends.
func collect(t testing.TB) {
	var done sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	done.Go(func() {
		for ctx.Err() == nil {
			runtime.GC()
		}
	})
	t.Cleanup(done.Wait)
	t.Cleanup(stop)
}

func TestThousandColumnsAreBound(t *testing.T) {
	c := connect(t)
	collect(t)
	const columns = 1000
	s := statement(t, c, "SELECT ?"+strings.Repeat(", ?", columns-1))
	require.NoError(t, s.Prepare(t.Context()))
	for i := range 5 {
		sent := wide(columns, i)
		require.NoError(t, s.Bind(t.Context(), sent))
		sent.Release()
		r, _, err := s.ExecuteQuery(t.Context())
		require.NoError(t, err)
		requireRows(t, r, columns, i*rowsOfBatch, rowsOfBatch)
		r.Release()
	}
}

// requireRows reads the rest of a result, and compares it with rows of wide.
func requireRows(t *testing.T, r array.RecordReader, columns, first, n int) {
	t.Helper()
	row := first
	for r.Next() {
		batch := r.RecordBatch()
		require.EqualValues(t, columns, batch.NumCols())
		for c, column := range batch.Columns() {
			for i := range column.Len() {
				switch column := column.(type) {
				case *array.Int64:
					require.EqualValues(t, row+i+c, column.Value(i))
				case *array.String:
					require.Equal(t, text(row+i, c), column.Value(i))
				case *array.Float64:
					require.EqualValues(t, float64(row+i)+0.5, column.Value(i))
				case *array.Binary:
					require.Equal(t, text(row+i, c), string(column.Value(i)))
				default:
					t.Fatalf("column %d is %v", c, column.DataType())
				}
			}
		}
		row += int(batch.NumRows())
	}
	require.NoError(t, r.Err())
	require.Equal(t, first+n, row)
}

func TestThousandBatchesAreBound(t *testing.T) {
	c := connect(t)
	collect(t)
	const n = 1000
	rows, err := ingest(t, c, "wide", 4, batches(4, n, nil)).ExecuteUpdate(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, n*rowsOfBatch, rows)
	r, _, err := statement(t, c, "SELECT * FROM wide ORDER BY c0").ExecuteQuery(t.Context())
	require.NoError(t, err)
	defer r.Release()
	requireRows(t, r, 4, 0, n*rowsOfBatch)
}

func TestReaderFails(t *testing.T) {
	for _, after := range []int{0, 1, 20} {
		t.Run(fmt.Sprintf("after %d batches", after), func(t *testing.T) {
			_, err := ingest(t, connect(t), "wide", 4, batches(4, after, errors.New("the source is gone"))).ExecuteUpdate(t.Context())
			assert.ErrorContains(t, err, "the source is gone")
		})
	}
}

func TestReaderPanics(t *testing.T) {
	_, err := ingest(t, connect(t), "wide", 4, func(yield func(arrow.RecordBatch, error) bool) {
		if yield(wide(4, 0), nil) {
			panic("the source is broken")
		}
	}).ExecuteUpdate(t.Context())
	assert.ErrorContains(t, err, "the source is broken")
}

// The program ends the statement in its middle by its own reader, as the driver manager does not use contexts.
func TestStreamIsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, err := ingest(t, connect(t), "wide", 4, func(yield func(arrow.RecordBatch, error) bool) {
		for i := 0; yield(wide(4, i), ctx.Err()); i++ {
			if i == 20 {
				cancel()
			}
		}
	}).ExecuteUpdate(ctx)
	assert.ErrorContains(t, err, context.Canceled.Error())
}

func TestBoundButNotExecuted(t *testing.T) {
	c := connect(t)
	ingest(t, c, "wide", 4, batches(4, 3, nil))
	batch := wide(1, 0)
	defer batch.Release()
	s := statement(t, c, "SELECT ?")
	require.NoError(t, s.Bind(t.Context(), batch))
	require.NoError(t, s.Bind(t.Context(), batch))
}

func TestResultIsReleasedEarly(t *testing.T) {
	c := connect(t)
	_, err := ingest(t, c, "wide", 4, batches(4, 100, nil)).ExecuteUpdate(t.Context())
	require.NoError(t, err)
	s := statement(t, c, "SELECT * FROM wide ORDER BY c0")
	for range 3 {
		r, _, err := s.ExecuteQuery(t.Context())
		require.NoError(t, err)
		require.True(t, r.Next())
		kept := r.RecordBatch()
		kept.Retain()
		r.Release()
		runtime.GC()
		assert.Equal(t, text(1, 1), kept.Column(1).(*array.String).Value(1))
		kept.Release()
	}
}

// Readers that the program forgets are collected.
func TestResultsAreDropped(t *testing.T) {
	c := connect(t)
	for range 10 {
		r, _, err := statement(t, c, "SELECT 1").ExecuteQuery(t.Context())
		require.NoError(t, err)
		require.NotNil(t, r.Schema())
	}
	for cdevice.ReadStats().ImportedStreams > 0 { // the statements are closed after them
		runtime.GC()
	}
}
