package ci

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The table of libraries in docs/interop.md: its versions are pinned by the test environments or by go.mod, and each
// row names a test; TestLinksLeadSomewhere finds those that do not exist. The environments install exactly what is pinned, so a test of a row runs with that version.
func TestLibrariesOfInteropAreTested(t *testing.T) {
	page, err := os.ReadFile("../docs/interop.md")
	require.NoError(t, err)
	rows := librariesOf(string(page))
	assert.Greater(t, len(rows), 30)
	for _, problem := range untested(rows, pinned(t)) {
		t.Error(problem)
	}
}

// librariesOf returns the cells of the rows of the table.
func librariesOf(page string) (rows [][]string) {
	_, table, _ := strings.Cut("\n"+page, "\n| with | on |")
	table, _, _ = strings.Cut(table, "\n\n")
	for _, line := range strings.Split(strings.TrimSpace(table), "\n")[2:] {
		rows = append(rows, strings.Split(strings.Trim(line, "|"), "|"))
	}
	return rows
}

// distributions are the packages of libraries whose package has another name.
var distributions = map[string]string{
	"Arrow C++": "pyarrow", "arrow-go": "github.com/apache/arrow-go/v18",
	"duckdb-go": "github.com/duckdb/duckdb-go/v2", "ADBC": "github.com/apache/arrow-adbc/go/adbc",
}

// withVersion matches the first cell of a row: a library and its version.
var withVersion = regexp.MustCompile(`^(.*) (v?\d\S*)$`)

// untested returns the problems of rows.
func untested(rows [][]string, pins map[string]bool) (problems []string) {
	for _, row := range rows {
		with := strings.TrimSpace(row[0])
		if m := withVersion.FindStringSubmatch(with); m != nil {
			name := m[1]
			if d, ok := distributions[name]; ok {
				name = d
			}
			if !pins[strings.ToLower(name)+" "+m[2]] {
				problems = append(problems, with+": this version is not pinned")
			}
		}
		if !namePattern.MatchString(strings.Join(row[3:], "")) {
			problems = append(problems, with+": no test")
		}
	}
	return problems
}

// pinned returns the packages that the go.mods, the requirements and the scripts of the Python suites name, with versions.
func pinned(t *testing.T) map[string]bool {
	pins := map[string]bool{}
	pin := regexp.MustCompile(`(?m)^\s*([\w./-]+)(?:==|=| )(v?\d[\w.]*)(; python_version < "3\.11")?`)
	files, err := filepath.Glob("../integration/*/requirements*.txt")
	require.NoError(t, err)
	for _, file := range append(files, "../integration/cuda/nanoarrow.sh", "../go.mod", "../integration/programs/go.mod") {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, m := range pin.FindAllStringSubmatch(string(content), -1) {
			if m[3] == "" { // else it is for an old Python, and not of the table
				pins[strings.ToLower(m[1])+" "+m[2]] = true
			}
		}
	}
	return pins
}
