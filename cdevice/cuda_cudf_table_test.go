package cdevice_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
)

// refusedByCuDF are the types that libcudf has no columns of.
var refusedByCuDF = map[arrow.Type]bool{
	arrow.FLOAT16: true, arrow.DECIMAL256: true, arrow.DATE64: true, arrow.TIME32: true, arrow.TIME64: true,
	arrow.INTERVAL_MONTHS: true, arrow.INTERVAL_DAY_TIME: true, arrow.INTERVAL_MONTH_DAY_NANO: true,
	arrow.BINARY: true, arrow.LARGE_BINARY: true, arrow.BINARY_VIEW: true, arrow.FIXED_SIZE_BINARY: true,
	arrow.LARGE_LIST: true, arrow.LIST_VIEW: true, arrow.LARGE_LIST_VIEW: true, arrow.MAP: true,
	arrow.SPARSE_UNION: true, arrow.DENSE_UNION: true, arrow.RUN_END_ENCODED: true,
}

// cuDFRow is a row of the table in docs/cudf.md.
type cuDFRow struct{ to, from string }

// cuDFTable reads the table, by the names of types in arrow-go.
func cuDFTable(t *testing.T) map[string]cuDFRow {
	t.Helper()
	page, err := os.ReadFile("../docs/cudf.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "<!-- types: ")
	require.True(t, found)
	table, _, found = strings.Cut(table, "<!-- end of types -->")
	require.True(t, found)
	rows := map[string]cuDFRow{}
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[3:] { // after the comment and the header
		cells := strings.Split(line, "|")
		require.Len(t, cells, 5, line)
		name := strings.TrimSpace(cells[1])
		assert.NotContains(t, rows, name, "twice")
		rows[name] = cuDFRow{strings.TrimSpace(cells[2]), strings.TrimSpace(cells[3])}
	}
	return rows
}

var testName = regexp.MustCompile("`(Test[^`/]*)(?:/([^`]*))?`")

// The table of docs/cudf.md has every type of arrow-go, says of each what the tests find, names a test of each
// case, and names tests that exist.
func TestCuDFTable(t *testing.T) {
	rows := cuDFTable(t)
	types := 0
	for id := arrow.Type(0); !strings.HasPrefix(id.String(), "Type("); id++ {
		types++
		row, ok := rows[id.String()]
		if assert.True(t, ok, "no row of %s", id) {
			assert.Equal(t, refusedByCuDF[id], strings.HasPrefix(row.to, "refused `"), "%s: to cuDF", id)
			assert.Regexp(t, testName, row.to, "%s: to cuDF", id)
			assert.True(t, strings.HasPrefix(row.from, "none") || testName.MatchString(row.from), "%s: from cuDF", id)
		}
	}
	assert.Len(t, rows, types)

	subtests := map[string][]string{"TestImportFromCuDF": cuDFTypes}
	for _, c := range cases.All() {
		subtests["TestForCuDF"] = append(subtests["TestForCuDF"], c.Name)
		assert.Contains(t, rows[c.Type.ID().String()].to, "`TestForCuDF/"+c.Name+"`", "%s: to cuDF", c.Type.ID())
	}
	for _, name := range cuDFTypes {
		assert.Contains(t, rows[casesByName[name].Type.ID().String()].from, "`TestImportFromCuDF/"+name+"`", name)
	}
	for name := range unsanitized(t) {
		subtests["TestForCuDFSanitizes"] = append(subtests["TestForCuDFSanitizes"], name)
	}
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	var source strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		source.Write(b)
	}
	page, err := os.ReadFile("../docs/cudf.md")
	require.NoError(t, err)
	for _, m := range testName.FindAllStringSubmatch(string(page), -1) {
		assert.Contains(t, source.String(), "\nfunc "+m[1]+"(t *testing.T)", "docs/cudf.md names it")
		if m[2] != "" {
			assert.Contains(t, subtests[m[1]], m[2], "docs/cudf.md names it")
		}
	}
}
