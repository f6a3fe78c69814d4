package cdevice_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/testing/cases"
	"github.com/arrowdevice/arrowdevice/internal/testing/cudatest"
	"github.com/arrowdevice/arrowdevice/memory/cudaalloc"
)

// Each type, however it is presented, is given as libcudf reads it and comes back the same; or it is refused.
func TestForCuDF(t *testing.T) {
	checkLeaks(t)
	m := cudatest.Simulated(t, cudasim.Options{})
	gpu := m.GPUs[0]
	for _, c := range cases.All() {
		t.Run(c.Name, func(t *testing.T) {
			for _, v := range cases.Variants {
				arr, err := c.Array(memory.DefaultAllocator, v)
				require.NoError(t, err)
				there, err := copyArray(background, arr, gpu)
				require.NoError(t, err)
				part, err := there.Slice(min(1, there.Len()), there.Len())
				require.NoError(t, err)
				for _, a := range []*cdevice.Array{there, part, throughC(t, part, cdevice.WithDevice(gpu))} {
					throughCuDF(t, gpu, a, refusedByCuDF[storageOf(c.Type).ID()])
					a.Release()
				}
				arr.Release()
			}
		})
	}
}

// throughCuDF checks the structs that libcudf is given of an array, and that FromCuDF makes the array of them again.
func throughCuDF(t *testing.T, gpu *cudaalloc.Device, a *cdevice.Array, refused bool) {
	t.Helper()
	out, schema := garbageArray(), garbageSchema()
	err := exportMade(out, schema)(a.ForCuDF(background, cdevice.WithTimeZoneLoss()))
	if refused {
		require.ErrorIs(t, err, arrow.ErrNotImplemented)
		require.ErrorContains(t, err, "a type that cuDF has")
		return
	}
	require.NoError(t, err)
	if out.SyncEvent != 0 {
		e, err := gpu.WrapEvent(*abi.At[uintptr](out.SyncEvent))
		require.NoError(t, err)
		require.NoError(t, e.Synchronize(background))
	}
	asCuDFWants(t, gpu, abi.As[abi.ArrowArray](&out.Array))
	nulls, err := a.CountNulls(background)
	require.NoError(t, err)
	assert.Equal(t, nulls, out.Array.NullCount)
	imported, err := validated(cdevice.ImportArray(out, schema, cdevice.WithDevice(gpu)))
	require.NoError(t, err)
	back, err := imported.FromCuDF(background, a.DataType())
	require.NoError(t, err)
	imported.Release()
	want, err := a.CopyToHost(background, nil)
	require.NoError(t, err)
	sameOnHost(t, want, back)
	want.Release()
	back.Release()
}

// A copy that ForCuDF finds laid out as it should be may be pending still: its event and
// the stream's work are behind the export's.
func TestGPUForCuDFCoversThePendingCopy(t *testing.T) {
	checkLeaks(t)
	want := fromJSON(t, arrow.PrimitiveTypes.Int64, `[1,2,3]`)
	cudatest.EachMachine(t, func(t *testing.T, m *cudatest.Machine) {
		gpu := m.GPUs[0]
		for _, recorded := range []bool{false, true} {
			pending, err := copyArray(background, want, gpu, cdevice.WithStream(newStream(t, gpu)))
			require.NoError(t, err)
			out, schema := garbageArray(), garbageSchema()
			if recorded {
				pending = made(t, pending)(pending.WithEvent(newStream(t, gpu)))
			}
			require.NoError(t, exportMade(out, schema)(pending.ForCuDF(background)))
			pending.Release()
			back, err := cdevice.ImportArray(out, schema, cdevice.WithDevice(gpu))
			require.NoError(t, err)
			copied, err := back.CopyTo(background, gpu, cdevice.WithStream(newStream(t, gpu)))
			require.NoError(t, err)
			sameOnHost(t, want, copied)
			copied.Release()
			back.Release()
		}
	})
}

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
	files, err := filepath.Glob("*cudf*_test.go")
	require.NoError(t, err)
	var source strings.Builder
	for _, f := range append(files, "../internal/copyplan/cudf_test.go", "../internal/copyplan/sanitize_test.go") {
		b, err := os.ReadFile(f)
		require.NoError(t, err)
		source.Write(b)
	}
	page, err := os.ReadFile("../docs/cudf.md")
	require.NoError(t, err)
	for _, m := range testName.FindAllStringSubmatch(string(page), -1) {
		assert.Contains(t, source.String(), "\nfunc "+m[1]+"(t *testing.T)", "docs/cudf.md names it")
		if names := subtests[m[1]]; names != nil && m[2] != "" {
			assert.Contains(t, names, m[2], "docs/cudf.md names it")
		} else if m[2] != "" {
			assert.Contains(t, source.String(), `"`+m[2]+`"`, "docs/cudf.md names it")
		}
	}
}
