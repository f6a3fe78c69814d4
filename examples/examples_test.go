// Package examples has programs to begin with, which its test runs on the simulated driver.
package examples

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
)

// programs are those of docs/cookbook.md. pyextension and distributed are run by tests in Python,
// triton by integration/triton.
var programs = []string{"consumer", "pyextension", "roundtrip", "columns", "parquet", "flight", "share", "triton"}

func TestPrograms(t *testing.T) {
	driver, err := cudasim.Options{}.Build()
	require.NoError(t, err)
	for name, want := range map[string]string{
		"consumer":  "total: 10\n",
		"roundtrip": strings.Repeat("4 rows from cuda:0\n", 3),
		"flight":    strings.Repeat("4 rows on cuda:0\n", 3),
		"share":     sharedOn("cpu") + sharedOn("cuda:0"),
		"columns":   "[1 2 3] at an address: [1 2 3]\n",
		"parquet":   "65536 rows on cuda:0\n34464 rows on cuda:0\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := built(t, name)
			var args []string
			if name == "parquet" {
				args = []string{parquetFile(t, 100_000)}
			}
			run := exec.Command(program, args...)
			run.Env = append(os.Environ(), "CDEVICE_CUDA_DRIVER="+driver, "CUDASIM=")
			out, err := run.CombinedOutput()
			require.NoError(t, err, "%s", out)
			assert.Equal(t, want, string(out))
		})
	}
}

// Without a driver, host memory is shared.
func TestShareWithoutADriver(t *testing.T) {
	run := exec.Command(built(t, "share"))
	run.Env = append(os.Environ(), "CDEVICE_CUDA_DRIVER="+filepath.Join(t.TempDir(), "none"))
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, sharedOn("cpu"), string(out))
}

// The others need a GPU, and say how to do without.
func TestProgramsWithoutADriver(t *testing.T) {
	for _, name := range []string{"roundtrip", "columns", "parquet", "flight"} {
		run := exec.Command(built(t, name), "a file")
		run.Env = append(os.Environ(), "CDEVICE_CUDA_DRIVER="+filepath.Join(t.TempDir(), "none"))
		out, err := run.CombinedOutput()
		assert.Error(t, err, name)
		assert.Contains(t, string(out), "without a GPU: go run ./cudasim/run go run ./examples/"+name, name)
	}
}

// sharedOn is what the second process of share prints.
func sharedOn(id string) string { return "sum 10 of 4 rows in the owner's memory on " + id + "\n" }

// built returns the path of a program.
func built(t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	out, err := exec.Command("go", "build", "-o", program, "./"+name).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// parquetFile is a file of numbers and texts.
func parquetFile(t *testing.T, rows int) string {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}, {Name: "s", Type: arrow.BinaryTypes.String}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for i := range rows {
		b.Field(0).(*array.Int64Builder).Append(int64(i))
		b.Field(1).(*array.StringBuilder).Append("some text")
	}
	rec := b.NewRecordBatch()
	defer rec.Release()
	table := array.NewTableFromRecords(schema, []arrow.RecordBatch{rec})
	defer table.Release()
	name := filepath.Join(t.TempDir(), "numbers.parquet")
	f, err := os.Create(name)
	require.NoError(t, err)
	require.NoError(t, pqarrow.WriteTable(table, f, int64(rows), parquet.NewWriterProperties(), pqarrow.DefaultWriterProps()))
	return name
}

var update = flag.Bool("update", false, "write the programs into docs/cookbook.md")

// The cookbook has the programs as they are, and each is short.
func TestCookbookHasThePrograms(t *testing.T) {
	const name = "../docs/cookbook.md"
	page, err := os.ReadFile(name)
	require.NoError(t, err)
	want := string(page)
	for _, p := range programs {
		most := 60
		switch p {
		case "pyextension":
			most = 40
		case "roundtrip": // a function that its test calls
			most = 70
		case "flight": // a server and a client
			most = 90
		case "share": // two processes
			most = 100
		case "triton": // what is registered is unregistered on each path
			most = 110
		}
		want = withProgram(t, want, p, "main.go", "go", most)
	}
	want = withProgram(t, want, "roundtrip/main_test.go", "", "go", 30)
	want = withProgram(t, want, "pyextension/use.py", "", "python", 10)
	want = withProgram(t, want, "distributed/orders", "main.go", "go", 60)
	if *update {
		require.NoError(t, os.WriteFile(name, []byte(want), 0o644))
		return
	}
	assert.Equal(t, want, string(page), "go test ./examples -update writes the page")
}

// withProgram returns a page in which the block behind the link to a file, or to the folder of a
// file, is the file. It has less than most lines.
func withProgram(t *testing.T, page, link, file, language string, most int) string {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(link, file))
	require.NoError(t, err)
	assert.Less(t, bytes.Count(program, []byte("\n")), most, "lines of %s", link)
	block := regexp.MustCompile(`(?s)(\(\.\./examples/` + regexp.QuoteMeta(link) + `\)[^\n]*\n\n)` + "```" + language + "\n.*?\n```\n")
	require.Regexp(t, block, page, link)
	return block.ReplaceAllStringFunc(page, func(old string) string {
		return block.FindStringSubmatch(old)[1] + "```" + language + "\n" + string(program) + "```\n"
	})
}
