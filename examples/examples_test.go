// Package examples has programs to begin with, which its test runs on the simulated driver.
package examples

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/goroutineleak"
)

func TestPrograms(t *testing.T) {
	driver, err := cudasim.Options{}.Build()
	require.NoError(t, err)
	for name, want := range map[string]string{
		"consumer":  "total: 10\n",
		"roundtrip": strings.Repeat("4 rows from cuda:0\n", 3),
		"flight":    strings.Repeat("4 rows on cuda:0\n", 3),
		"share":     sharedOn("cpu") + sharedOn("cuda:0"),
		"producer":  "[7 7 7 7]\n",
		"kernel":    "[16843009 16843009 16843009 16843009]\n",
		"columns":   "[1 2 3] at an address: [1 2 3]\n",
		"files":     "65536 rows on cuda:0\n100000 rows on cuda:0\n100010 rows on cuda:0\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := built(t, name)
			var args []string
			if name == "files" {
				args = []string{parquetFile(t, 100_000), parquetFile(t, 10)}
			}
			run := exec.Command(program, args...)
			run.Env = append(os.Environ(), "CDEVICE_CUDA_DRIVER="+driver, "CUDASIM=")
			out, err := run.Output()
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
	for _, name := range []string{"roundtrip", "kernel", "columns", "files", "flight", "producer"} {
		run := exec.Command(built(t, name), "a file")
		run.Env = append(os.Environ(), "CDEVICE_CUDA_DRIVER="+filepath.Join(t.TempDir(), "none"))
		out, err := run.CombinedOutput()
		assert.Error(t, err, name)
		assert.Contains(t, string(out), "without a GPU: go run ./cudasim/run go run ./examples/"+name, name)
	}
}

// sharedOn is what the second process of share prints.
func sharedOn(id string) string { return "sum 10 of 4 rows in the owner's memory on " + id + "\n" }

// programs is the folder of all programs, which build builds once.
var programs string

var build = sync.OnceValue(func() error {
	names := []string{"./columns", "./consumer", "./files", "./flight", "./kernel", "./producer", "./roundtrip", "./share"}
	out, err := exec.Command("go", append([]string{"build", "-o", programs}, names...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
})

func TestMain(m *testing.M) {
	var err error
	if programs, err = os.MkdirTemp("", "examples-"); err != nil {
		panic(err)
	}
	status := goroutineleak.Run(m)
	os.RemoveAll(programs)
	os.Exit(status)
}

// built returns the path of a program.
func built(t *testing.T, name string) string {
	t.Helper()
	require.NoError(t, build())
	return filepath.Join(programs, name)
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

var update = flag.Bool("update", false, "write the programs into the pages")

// shown are the programs that a page shows behind a link to a file, or to the folder of a file: main.go#f is the
// function f of main.go. pyextension and distributed are run by tests in Python, triton by integration/triton, those
// of sql by a script there.
var shown = []struct {
	page, link, file, language string
	most                       int // lines of the program
}{
	{"cookbook.md", "consumer", "main.go", "go", 60},
	{"cookbook.md", "pyextension", "main.go", "go", 40},
	{"cookbook.md", "pyextension/use.py", "", "python", 10},
	{"cookbook.md", "roundtrip", "main.go", "go", 70}, // a function that its test calls
	{"cookbook.md", "roundtrip/main_test.go", "", "go", 30},
	{"cookbook.md", "columns", "main.go", "go", 60},
	{"cookbook.md", "filter", "main.go", "go", 60},
	{"cookbook.md", "driver", "main.go", "go", 110},
	{"cookbook.md", "driver/read", "read.c", "c", 50},
	{"cookbook.md", "producer/producer.h", "", "c", 10},
	{"cookbook.md", "producer", "producer.c", "c", 120},
	{"cookbook.md", "producer/main.go", "", "go", 60},
	{"cookbook.md", "files", "main.go", "go", 140}, // with its errors
	{"cookbook.md", "sql/duckdb", "main.go#addPrevious", "go", 30},
	{"cookbook.md", "sql/adbc", "main.go#addPrevious", "go", 40},
	{"cuda.md", "kernel", "main.go", "go", 100}, // two streams
}

func TestPagesHaveThePrograms(t *testing.T) {
	for _, p := range shown {
		name := filepath.Join("../docs", p.page)
		page, err := os.ReadFile(name)
		require.NoError(t, err)
		file, function, _ := strings.Cut(p.file, "#")
		program, err := os.ReadFile(filepath.Join(p.link, file))
		require.NoError(t, err)
		if function != "" {
			program = regexp.MustCompile(`(?ms)^// ` + function + ` .*?^}\n`).Find(program)
			require.NotEmpty(t, program, "%s of %s", function, p.link)
		}
		assert.Less(t, bytes.Count(program, []byte("\n")), p.most, "lines of %s", p.link)
		block := regexp.MustCompile(`(?s)(\(\.\./examples/` + regexp.QuoteMeta(p.link) + `\)[^\n]*\n\n` + "```" + p.language + "\n).*?```\n")
		require.Regexp(t, block, string(page), p.link)
		want := block.ReplaceAllStringFunc(string(page), func(old string) string {
			return block.FindStringSubmatch(old)[1] + string(program) + "```\n"
		})
		if *update {
			require.NoError(t, os.WriteFile(name, []byte(want), 0o644))
			continue
		}
		assert.Equal(t, want, string(page), "go test ./examples -update writes the pages")
	}
}

// C calls the driver, which is written in Go, as the commands of the cookbook have it. AddressSanitizer fails a program that
// has not released a batch.
func TestDriver(t *testing.T) {
	const refused, closed = "error 22: invalid: -1 batches\n", "error 5: panic: runtime/cgo: misuse of an invalid Handle\n"
	assert.Equal(t, refused+"total: 66\ntotal: 66\n"+closed, driven(t, "n++"))
	broken := "error 5: cdevice: panic: broken\n"
	assert.Equal(t, refused+broken+broken+closed, driven(t, `if n++; n == 2 { panic("broken") }`))
}

// driven returns what the program in C prints that calls the driver, with a line of the driver instead of another.
func driven(t *testing.T, line string) string {
	t.Helper()
	page, err := os.ReadFile("../docs/cookbook.md")
	require.NoError(t, err)
	commands := regexp.MustCompile("(?s)\n## A driver whose functions C calls\n.*?```sh\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, commands)
	driver, err := os.ReadFile("driver/main.go")
	require.NoError(t, err)
	require.Equal(t, 1, bytes.Count(driver, []byte("\tn++\n")))
	folder := t.TempDir()
	changed := bytes.Replace(driver, []byte("\tn++\n"), []byte("\t"+line+"\n"), 1)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "main.go"), changed, 0o644))
	overlay := fmt.Sprintf(`{"Replace": {"examples/driver/main.go": "%s/main.go"}}`, folder)
	require.NoError(t, os.WriteFile(filepath.Join(folder, "overlay.json"), []byte(overlay), 0o644))
	script := strings.NewReplacer("go build", "go build -overlay="+folder+"/overlay.json",
		"gcc", "gcc -fsanitize=address", "build/", folder+"/").Replace(string(commands[1]))
	run := exec.Command("bash", "-ec", script)
	run.Dir = ".."
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

// The commands of the cookbook build the consumer in C in a module of its own, which finds arrow_device.h.
func TestConsumerInItsOwnModule(t *testing.T) {
	page, err := os.ReadFile("../docs/cookbook.md")
	require.NoError(t, err)
	commands := regexp.MustCompile("(?s)\n## Export to a consumer in C\n.*?```sh\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, commands)
	checkout, err := filepath.Abs("..")
	require.NoError(t, err)
	root := filepath.Join(t.TempDir(), "a path with spaces")
	require.NoError(t, os.Symlink(checkout, root))
	script := string(commands[1])
	for line, instead := range map[string]string{
		"git clone https://github.com/arrowdevice/arrowdevice\n": "",
		"=../arrowdevice ":   "='" + root + "' ",
		"# main.go is below": "\ncp '" + root + "/examples/consumer/main.go' .",
	} {
		require.Equal(t, 1, strings.Count(script, line), line)
		script = strings.Replace(script, line, instead, 1)
	}
	run := exec.Command("bash", "-ec", script)
	run.Dir = t.TempDir()
	out, err := run.CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Equal(t, "total: 10\n", string(out[strings.LastIndex(strings.TrimSpace(string(out)), "\n")+1:]))
}
