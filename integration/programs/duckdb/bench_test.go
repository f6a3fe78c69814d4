//go:build duckdb_arrow

package duckdb

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A result of 1,000 columns and one chunk, from the query to its last column; ns/chunk is the time of the chunk alone. With
// --arrow-go it is arrow-go's package that imports it.
func BenchmarkQueryThousandColumns(b *testing.B) {
	from := openUnchecked(b).connect(b)
	from.exec(b, "CREATE TABLE wide AS SELECT "+strings.Repeat("n, ", 999)+"n FROM range(10) AS numbers(n)")
	b.ReportAllocs()
	var chunks time.Duration
	for b.Loop() {
		r, err := from.arrow.QueryContext(b.Context(), "FROM wide")
		require.NoError(b, err)
		begin := time.Now()
		require.True(b, r.Next())
		for _, column := range r.RecordBatch().Columns() {
			if column.Len() != 10 {
				b.Fatal(column)
			}
		}
		chunks += time.Since(begin)
		r.Release()
	}
	b.ReportMetric(float64(chunks)/float64(b.N), "ns/chunk")
}
