// Package adbc has tests of ADBC's driver manager with SQLite's driver, in which package cdata of this module takes the
// place of arrow-go's.
package adbc

import (
	"context"
	"testing"

	"github.com/apache/arrow-adbc/go/adbc"
	"github.com/apache/arrow-adbc/go/adbc/drivermgr"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice/cdevicetest"
)

// connect opens a database in memory, at the end of whose test nothing of this module may be left.
func connect(t testing.TB) adbc.Connection {
	t.Helper()
	cdevicetest.CheckLeaks(t)
	db, err := drivermgr.Driver{}.NewDatabase(map[string]string{"driver": "adbc_driver_sqlite"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	c, err := db.Open(context.Background())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// statement makes one, which the end of the test closes.
func statement(t testing.TB, c adbc.Connection, query string) adbc.Statement {
	t.Helper()
	s, err := c.NewStatement()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.SetSqlQuery(query))
	return s
}
