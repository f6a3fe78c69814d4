//go:build duckdb_arrow

package duckdb

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var schema = arrow.NewSchema([]arrow.Field{
	{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
	{Name: "s", Type: arrow.BinaryTypes.String, Nullable: true},
	{Name: "l", Type: arrow.ListOf(arrow.PrimitiveTypes.Int32), Nullable: true},
}, nil)

const rowsOfBatch = 100

// batch is the i-th one of a stream, in memory of the Go heap.
func batch(i int) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.NewGoAllocator(), schema)
	defer b.Release()
	lists := b.Field(2).(*array.ListBuilder)
	for row := i * rowsOfBatch; row < (i+1)*rowsOfBatch; row++ {
		b.Field(0).(*array.Int64Builder).Append(int64(row))
		b.Field(1).(*array.StringBuilder).Append(strings.Repeat("text ", row%5) + fmt.Sprint(row))
		lists.Append(true)
		lists.ValueBuilder().(*array.Int32Builder).AppendValues([]int32{int32(row), 1, 2}, nil)
	}
	return b.NewRecordBatch()
}

// batches are n of them, and then an error unless it is nil.
func batches(n int, then error) iter.Seq2[arrow.RecordBatch, error] {
	return func(yield func(arrow.RecordBatch, error) bool) {
		for i := range n {
			if !yield(batch(i), nil) {
				return
			}
		}
		if then != nil {
			yield(nil, then)
		}
	}
}

// reader is one of batches, which the end of the test releases.
func reader(t testing.TB, from iter.Seq2[arrow.RecordBatch, error]) array.RecordReader {
	t.Helper()
	r := array.ReaderFromIter(schema, from)
	t.Cleanup(r.Release)
	return r
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

const correct = "s = repeat('text ', n % 5) || n AND l = [n, 1, 2]"

func TestBatchesOfTheGoHeap(t *testing.T) {
	to := open(t).connect(t)
	collect(t)
	to.view(t, "v", reader(t, batches(1000, nil)))
	assert.EqualValues(t, 1000*rowsOfBatch, to.count(t, "SELECT count(DISTINCT n) FROM v WHERE "+correct))
}

// The reason why checkLeaks does not count schemas.
func TestSchemasAreNotReleased(t *testing.T) {
	to := open(t).connect(t)
	before := leakedSchemas()
	to.view(t, "v", reader(t, batches(1, nil)))
	assert.Greater(t, leakedSchemas(), before)
}

func TestConnectionsAtOnce(t *testing.T) {
	db := open(t)
	var done sync.WaitGroup
	defer done.Wait()
	for i := range 4 {
		from, to := db.connect(t), db.connect(t)
		done.Go(func() {
			name := fmt.Sprintf("v%d", i)
			to.view(t, name, from.query(t, "SELECT n, repeat('text ', n % 5) || n AS s, [n, 1, 2] AS l FROM range(50000) AS numbers(n)"))
			assert.EqualValues(t, 50000, to.count(t, "SELECT count(DISTINCT n) FROM "+name+" WHERE "+correct))
		})
	}
}

func TestReaderFails(t *testing.T) {
	for _, after := range []int{0, 1, 20} {
		t.Run(fmt.Sprintf("after %d batches", after), func(t *testing.T) {
			to := open(t).connect(t)
			to.view(t, "v", reader(t, batches(after, errors.New("the source is gone"))))
			_, err := to.ExecContext(t.Context(), "CREATE TABLE back AS SELECT * FROM v")
			assert.ErrorContains(t, err, "the source is gone")
			assert.Zero(t, to.count(t, "SELECT count(*) FROM duckdb_tables()"))
		})
	}
}

// DuckDB takes 1 for the only failure of get_schema, and reads the schema after any other.
func TestReaderFailsBeforeItsSchema(t *testing.T) {
	to := open(t).connect(t)
	release, err := to.arrow.RegisterView(failed{errors.New("the source was never there")}, "v")
	if err == nil { // arrow-go's package returns the code 1
		defer release()
		_, err = to.ExecContext(t.Context(), "SELECT * FROM v")
	}
	assert.Error(t, err)
	assert.EqualValues(t, 1, to.count(t, "SELECT 1::BIGINT"), "the connection is still of use")
}

// failed is a reader of a source that failed before it had a schema.
type failed struct{ err error }

func (failed) Retain()                        {}
func (failed) Release()                       {}
func (failed) Schema() *arrow.Schema          { return nil }
func (failed) Next() bool                     { return false }
func (failed) RecordBatch() arrow.RecordBatch { return nil }
func (failed) Record() arrow.RecordBatch      { return nil }
func (f failed) Err() error                   { return f.err }

func TestReaderPanics(t *testing.T) {
	to := open(t).connect(t)
	to.view(t, "v", reader(t, func(yield func(arrow.RecordBatch, error) bool) {
		if yield(batch(0), nil) {
			panic("the source is broken")
		}
	}))
	_, err := to.ExecContext(t.Context(), "CREATE TABLE back AS SELECT * FROM v")
	assert.ErrorContains(t, err, "the source is broken")
}

func TestViewIsNotReadToItsEnd(t *testing.T) {
	to := open(t).connect(t)
	to.view(t, "unread", reader(t, batches(3, nil)))
	to.view(t, "v", reader(t, batches(1_000_000, nil)))
	assert.Equal(t, []int64{0}, values[int64](t, to, "SELECT n FROM v LIMIT 1"))
}

func TestQueryIsCancelled(t *testing.T) {
	from := open(t).connect(t)
	ctx, cancel := context.WithCancel(t.Context())
	r, err := from.arrow.QueryContext(ctx, "SELECT n FROM range(100000) AS numbers(n)")
	require.NoError(t, err)
	defer r.Release()
	require.True(t, r.Next())
	kept := r.RecordBatch()
	kept.Retain()
	defer kept.Release()
	cancel()
	assert.False(t, r.Next())
	assert.ErrorIs(t, r.Err(), context.Canceled)
	runtime.GC()
	assert.EqualValues(t, 7, kept.Column(0).(*array.Int64).Value(7))
}

// The reader of a view ends the query that reads it.
func TestQueryOfAViewIsCancelled(t *testing.T) {
	to := open(t).connect(t)
	ctx, cancel := context.WithCancel(t.Context())
	to.view(t, "v", reader(t, func(yield func(arrow.RecordBatch, error) bool) {
		for i := 0; yield(batch(i), ctx.Err()); i++ {
			if i == 20 {
				cancel()
			}
		}
	}))
	_, err := to.ExecContext(ctx, "CREATE TABLE back AS SELECT * FROM v")
	assert.ErrorIs(t, err, context.Canceled)
	assert.Zero(t, to.count(t, "SELECT count(*) FROM duckdb_tables()"))
}

func TestBatchesOutliveTheDatabase(t *testing.T) {
	checkLeaks(t)
	var kept []arrow.RecordBatch
	t.Run("read", func(t *testing.T) {
		from := openUnchecked(t).connect(t)
		r := from.query(t, "SELECT n, repeat('text ', n % 5) || n AS s FROM range(100000) AS numbers(n)")
		for r.Next() {
			r.RecordBatch().Retain()
			kept = append(kept, r.RecordBatch())
		}
		require.NoError(t, r.Err())
	})
	runtime.GC()
	row := 0
	for _, b := range kept {
		for i, n := range b.Column(0).(*array.Int64).Int64Values() {
			require.EqualValues(t, row, n)
			require.Equal(t, strings.Repeat("text ", row%5)+fmt.Sprint(row), b.Column(1).(*array.String).Value(i))
			row++
		}
		b.Release()
	}
	assert.Equal(t, 100000, row)
}
