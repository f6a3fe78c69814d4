//go:build duckdb_arrow

// Package duckdb has tests of duckdb-go, in which package cdata of this module takes the place of arrow-go's.
package duckdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/duckdb/duckdb-go/v2"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/internal/testing/within"
)

// database is one in memory.
type database struct{ *sql.DB }

// open opens a database, at the end of whose test nothing of this module may be left.
func open(t testing.TB) database {
	t.Helper()
	checkLeaks(t)
	return openUnchecked(t)
}

func openUnchecked(t testing.TB) database {
	t.Helper()
	connector, err := duckdb.NewConnector("", nil)
	require.NoError(t, err)
	db := database{sql.OpenDB(connector)}
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// checkLeaks is cdevicetest.CheckLeaks, but for the schemas: DuckDB releases none of those that it asks a stream for
// (github.com/duckdb/duckdb/pull/16050).
func checkLeaks(t testing.TB) {
	t.Helper()
	before, schemas := cdevice.ReadStats(), leakedSchemas()
	traced := cdevice.TraceObjects(true)
	t.Cleanup(func() {
		cdevice.TraceObjects(traced)
		var after cdevice.Stats
		// A reader of an iterator ends on a goroutine of its own.
		ended := within.Becomes(20*time.Second, func() bool {
			after = cdevice.ReadStats()
			after.ExportedBlocks -= leakedSchemas() - schemas
			return after == before
		})
		assert.True(t, ended, "not released at the end of the test: %v, before: %v", after, before)
	})
}

func leakedSchemas() (n int64) {
	for _, o := range cdevice.LiveObjects() {
		if o.Kind == "exported ArrowSchema" {
			n++
		}
	}
	return n
}

// connection is one of a database, with its Arrow interface.
type connection struct {
	*sql.Conn
	arrow *duckdb.Arrow
}

func (db database) connect(t testing.TB) connection {
	t.Helper()
	conn, err := db.Conn(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	c := connection{Conn: conn}
	require.NoError(t, conn.Raw(func(driverConn any) (err error) {
		c.arrow, err = duckdb.NewArrowFromConn(driverConn.(driver.Conn))
		return err
	}))
	return c
}

func (c connection) exec(t testing.TB, statement string) {
	t.Helper()
	_, err := c.ExecContext(context.Background(), statement)
	require.NoError(t, err, statement)
}

// values returns the only column of a query.
func values[T any](t testing.TB, c connection, query string) (column []T) {
	t.Helper()
	rows, err := c.QueryContext(context.Background(), query)
	require.NoError(t, err, query)
	defer rows.Close()
	for rows.Next() {
		var v T
		require.NoError(t, rows.Scan(&v))
		column = append(column, v)
	}
	require.NoError(t, rows.Err(), query)
	return column
}

// count returns the number that a query results in.
func (c connection) count(t testing.TB, query string) int64 {
	t.Helper()
	numbers := values[int64](t, c, query)
	require.Len(t, numbers, 1)
	return numbers[0]
}

// query returns the result of a query, which the end of the test releases.
func (c connection) query(t testing.TB, query string) array.RecordReader {
	t.Helper()
	r, err := c.arrow.QueryContext(t.Context(), query)
	require.NoError(t, err, query)
	t.Cleanup(r.Release)
	return r
}

// view makes a view of the batches of a reader, which can be read once.
func (c connection) view(t testing.TB, name string, r array.RecordReader) {
	t.Helper()
	release, err := c.arrow.RegisterView(r, name)
	require.NoError(t, err)
	t.Cleanup(release)
}
