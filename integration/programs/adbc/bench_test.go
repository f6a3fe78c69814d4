package adbc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A batch of 1,000 columns is bound, and not executed. With --arrow-go it is arrow-go's package that does so.
func BenchmarkBindThousandColumns(b *testing.B) {
	const columns = 1000
	s := statement(b, connect(b), "SELECT ?"+strings.Repeat(", ?", columns-1))
	batch := wide(columns, 0)
	defer batch.Release()
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, s.Bind(b.Context(), batch))
	}
}
