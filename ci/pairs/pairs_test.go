package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var some = []pair{
	{"polars", "2.1.0", "streams", toIt, onCPU, []string{"a/test_two.py", "a/test_one.py"}},
	{"polars", "2.1.0", "streams", fromIt, onCPU, []string{"a/test_one.py"}},
	{"polars", "2.1.0", "arrays", toIt, onCPU, []string{"a/test_one.py"}},
	{"nanoarrow", "0.6.0", "device arrays", fromIt, onSimulator, []string{"b/test_cuda.py"}},
	{"nanoarrow", "0.6.0", "device arrays", fromIt, onSimulator, []string{"b/test_cuda.py"}}, // of another suite
	{"nanoarrow", "0.9.0", "streams", toIt, onCPU, []string{"a/test_two.py"}},
	{"C programs", "", "arrays", fromIt, onCPU, []string{"TestC"}},
	{"DuckDB", "2.0.0", "streams", toIt, onCPU, []string{"a/test_two.py"}},
}

const shortTable = `| with | on | both ways | only to it | only from it |
|---|---|---|---|---|
| nanoarrow 0.9.0, DuckDB 2.0.0 | CPU | | streams | |
| nanoarrow 0.6.0 | simulated GPU | | | device arrays |
| polars 2.1.0 | CPU | streams | arrays | |
| C programs | CPU | | | arrays |
`

const longTable = "| with | on | protocol | from it | to it |\n|---|---|---|---|---|\n" +
	"| nanoarrow 0.9.0 | CPU | streams | | `test_two.py` |\n" +
	"| nanoarrow 0.6.0 | simulated GPU | device arrays | `test_cuda.py` | |\n" +
	"| polars 2.1.0 | CPU | arrays | | `test_one.py` |\n" +
	"| polars 2.1.0 | CPU | streams | `test_one.py` | `test_one.py`, `test_two.py` |\n" +
	"| DuckDB 2.0.0 | CPU | streams | | `test_two.py` |\n" +
	"| C programs | CPU | arrays | `TestC` | |\n"

func TestTables(t *testing.T) {
	assert.Equal(t, shortTable, short(some))
	assert.Equal(t, longTable, long(some))
}

func page(table string) string { return "# Title\n\n" + begin + "\n" + table + end + "\n\nMore.\n" }

func TestDifferences(t *testing.T) {
	found, err := differences(page(shortTable), short(some))
	require.NoError(t, err)
	assert.Empty(t, found)

	// A row too many, a row that is missing, and one that is not the same.
	found, err = differences(page(shortTable), short(append(some[1:6:6], pair{"DuckDB", "2.1.0", "streams", toIt, onCPU, []string{"x"}})))
	require.NoError(t, err)
	assert.Equal(t, []string{
		"- | nanoarrow 0.9.0, DuckDB 2.0.0 | CPU | | streams | |",
		"- | polars 2.1.0 | CPU | streams | arrays | |",
		"- | C programs | CPU | | | arrays |",
		"+ | nanoarrow 0.9.0, DuckDB 2.1.0 | CPU | | streams | |",
		"+ | polars 2.1.0 | CPU | | arrays | streams |",
	}, found)

	found, err = differences(page(shortTable+shortTable), shortTable)
	require.NoError(t, err)
	assert.NotEmpty(t, found, "the same rows twice")
	_, err = differences("# Title\n", shortTable)
	assert.ErrorContains(t, err, "no line")
}

func TestReplace(t *testing.T) {
	got, err := replace(page("old\n"), shortTable)
	require.NoError(t, err)
	assert.Equal(t, page(shortTable), got)
	_, err = replace("# Title\n", shortTable)
	assert.Error(t, err)
}

func TestPasses(t *testing.T) {
	passed := passes([]byte(`CUDASIM=delay=200
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestA"}
{"Action":"pass","Package":"p","Test":"TestB/one"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"pass","Package":"p","Test":"TestD"}
{"Action":"pass","Package":"p"}
CUDASIM=pools=0
{"Action":"pass","Package":"p","Test":"TestC"}
{"Action":"skip","Package":"p","Test":"TestD"}
`))
	assert.Equal(t, map[string]bool{"TestA": true, "TestB/one": true, "TestC": false, "TestD": false}, passed)
}

func TestOnlyWhatPassedIsProved(t *testing.T) {
	passed := map[string]map[string]bool{"./cdevice": {}}
	for _, test := range goTests {
		if test.pkg == "./cdevice" {
			passed["./cdevice"][test.name] = test.name != "TestAsyncToCdata"
		}
	}
	pairs := proved(passed)
	assert.NotContains(t, short(pairs), "gorgonia", "it did not run")
	assert.Contains(t, short(pairs), "| arrow-go | CPU | arrays, streams | | asynchronous streams |")
	for _, p := range pairs {
		assert.NoError(t, p.check())
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for _, suite := range suites {
		_, err := read(dir)
		assert.ErrorContains(t, err, "no results of the suite "+suite)
		require.NoError(t, write(dir, suite, some[:1]))
	}
	pairs, err := read(dir)
	require.NoError(t, err)
	assert.Len(t, pairs, len(suites))
	require.NoError(t, write(dir, "go", []pair{{"arrow-go", "", "streams", toIt, onCPU, []string{"x"}}}))
	pairs, err = read(dir)
	require.NoError(t, err)
	assert.Regexp(t, `^v18\.\d+\.\d+$`, pairs[0].Version)

	for text, bad := range map[string]pair{
		"no peer":      {"polar", "1", "streams", toIt, onCPU, []string{"x"}},
		"no protocol":  {"polars", "1", "stream", toIt, onCPU, []string{"x"}},
		"no direction": {"polars", "1", "streams", "to", onCPU, []string{"x"}},
		"no tests":     {"polars", "1", "streams", toIt, onCPU, nil},
	} {
		require.NoError(t, write(dir, "go", []pair{bad}))
		_, err := read(dir)
		assert.ErrorContains(t, err, text)
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.json"), []byte("{"), 0o666))
	_, err = read(dir)
	assert.ErrorContains(t, err, "go.json")
}

// The pages can be checked: they have a table each.
func TestPagesHaveTables(t *testing.T) {
	for name := range pages {
		content, err := os.ReadFile(filepath.Join("..", "..", name))
		require.NoError(t, err)
		_, table, _, err := parts(string(content))
		require.NoError(t, err, name)
		assert.Contains(t, table, "| with | on |", name)
	}
}
