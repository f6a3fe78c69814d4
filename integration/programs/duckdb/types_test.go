//go:build duckdb_arrow

package duckdb

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
)

// All types of DuckDB, out through Arrow and back in, with nulls and the ends of their ranges.
func TestAllTypesThereAndBack(t *testing.T) {
	// What DuckDB does not send out as it is, unless it is told to.
	const lossy = ", hugeint, uhugeint, time_tz, bit"
	const views = "SET arrow_output_version = '1.5'; SET produce_arrow_string_view = true; SET arrow_output_list_view = true"
	for name, setup := range map[string]struct{ settings, without, uuid string }{
		"plain":    {"SET arrow_large_buffer_size = false", lossy, "VARCHAR"},
		"large":    {"SET arrow_large_buffer_size = true", lossy, "VARCHAR"},
		"views":    {views, lossy, "VARCHAR"},
		"lossless": {"SET arrow_lossless_conversion = true", "", "UUID"},
	} {
		t.Run(name, func(t *testing.T) {
			db := open(t)
			from, to := db.connect(t), db.connect(t)
			from.exec(t, setup.settings)
			from.exec(t, "CREATE TABLE types AS SELECT row_number() OVER () AS id, * FROM test_all_types(), range(1000) AS copies(copy)")
			to.view(t, "sent", from.query(t, fmt.Sprintf("SELECT * EXCLUDE (copy%s) FROM types", setup.without)))
			to.exec(t, "CREATE TABLE back AS SELECT * FROM sent")
			assert.EqualValues(t, 3000, to.count(t, "SELECT count(*) FROM back"))

			columns := values[string](t, to, "SELECT column_name FROM (DESCRIBE back)")
			assert.Greater(t, len(columns), 50)
			for _, column := range columns {
				different := "SELECT count(*) FROM types JOIN back USING (id) WHERE types.%[1]q::VARCHAR IS DISTINCT FROM back.%[1]q::VARCHAR"
				assert.Zero(t, to.count(t, fmt.Sprintf(different, column)), column)
			}
			sent := fmt.Sprintf("SELECT CASE WHEN column_type = 'UUID' THEN '%s' WHEN column_type LIKE 'ENUM%%' THEN 'VARCHAR' "+
				"ELSE column_type END FROM (DESCRIBE SELECT * EXCLUDE (copy%s) FROM types)", setup.uuid, setup.without)
			assert.Equal(t, values[string](t, to, sent), values[string](t, to, "SELECT column_type FROM (DESCRIBE back)"))
		})
	}
}
