package ci

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const arrowGo = "github.com/apache/arrow-go/v18/arrow"

// known are the types of the variables that blocks use and do not declare, as a reader
// guesses them. Where there are several, one has to fit.
var known = map[string][]string{
	"a":          {"uintptr"},
	"addr":       {"uintptr"},
	"arr":        {"*cdata.CArrowArray", "*cdevice.CArrowDeviceArray", "arrow.Array"},
	"batch":      {"*cdevice.RecordBatch"},
	"client":     {"arrowflight.FlightServiceClient"},
	"columns":    {"[]cdevice.ArrayData"},
	"conn":       {"*grpc.ClientConn"},
	"ctx":        {"context.Context"},
	"err":        {"error"},
	"descriptor": {"*arrowflight.FlightDescriptor"},
	"dial":       {"flight.Dial"},
	"check":      {"func(*cdevice.RecordBatch) (*cdevice.RecordBatch, error)"},
	"f":          {"func(*cdevice.RecordBatch) (*cdevice.RecordBatch, error)"},
	"field":      {"arrow.Field"},
	"first":      {"*cdevice.Array"},
	"free":       {"func()"},
	"gpu":        {"*cudaalloc.Device"},
	"handler":    {"*cdevice.CArrowAsyncDeviceStreamHandler"},
	"hold":       {"func(device.Stream) (open func(), err error)"},
	"info":       {"*arrowflight.FlightInfo"},
	"limits":     {"cudaalloc.Limits"},
	"mem":        {"memory.Allocator"},
	"open":       {"func(path string) (*cdevice.RecordReader, error)"},
	"openDriver": {"func(path string) *cudaalloc.Device"},
	"out":        {"*cdevice.CArrowDeviceArray", "*cdevice.CArrowDeviceArrayStream", "*cdata.CArrowArray", "*cdata.CArrowArrayStream"},
	"outSchema":  {"*cdata.CArrowSchema"},
	"r":          {"*cdevice.RecordReader"},
	"rdr":        {"array.RecordReader"},
	"rec":        {"arrow.RecordBatch"},
	"rows":       {"int64"},
	"s":          {"uintptr", "device.Stream"},
	"sch":        {"*cdata.CArrowSchema"},
	"schema":     {"*arrow.Schema", "*cdata.CArrowSchema"},
	"second":     {"*cdevice.Array"},
	"sim":        {"*cudasim.Sim"},
	"src":        {"device.Ptr"},
	"start":      {"func(*cdevice.CArrowAsyncDeviceStreamHandler) error"},
	"stream":     {"*cdevice.CArrowDeviceArrayStream", "device.Stream"},
	"t":          {"*testing.T"},
	"third":      {"*cdevice.Array"},
	"ticket":     {"*arrowflight.Ticket"},
}

// blockChecker completes blocks and checks their types.
type blockChecker struct {
	files    *token.FileSet
	importer types.Importer
	paths    map[string]string // import paths by package name
	exports  map[string]string // files with the types of packages, by import path
}

func newBlockChecker(t *testing.T) *blockChecker {
	c := &blockChecker{files: token.NewFileSet(), paths: map[string]string{"C": "C", "array": arrowGo + "/array", "cdata": arrowGo + "/cdata", "memory": arrowGo + "/memory"}}
	for _, standard := range []string{"context", "errors", "fmt", "iter", "os", "testing", "time", "unsafe"} {
		c.paths[standard] = standard
	}
	c.paths["arrow"] = arrowGo
	c.paths["grpc"] = "google.golang.org/grpc"
	c.paths["arrowflight"] = arrowGo + "/flight"
	c.paths["cuvs"] = module + "interop/dlpack/testdata/cuvs" // the shape of a type of NVIDIA's package
	for own := range allowed {
		if !strings.Contains(own, "internal/") && !strings.Contains(own, "gorgonia") {
			c.paths[path.Base(own)] = module + own
		}
	}
	var err error
	c.exports, err = exportsOf(append(slices.DeleteFunc(slices.Collect(maps.Values(c.paths)), func(p string) bool { return p == "C" }), "math")...)
	require.NoError(t, err)
	c.importer = importer.ForCompiler(c.files, "gc", c.open)
	return c
}

// exportsOf builds packages, and all that they import, as far as that was not done before.
func exportsOf(packages ...string) (map[string]string, error) {
	out, err := exec.Command("go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}"}, packages...)...).Output()
	exports := map[string]string{}
	for line := range strings.Lines(string(out)) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		exports[name] = file
	}
	return exports, err
}

func (c *blockChecker) open(name string) (io.ReadCloser, error) {
	if _, ok := c.exports[name]; !ok { // a package that a block imports itself
		more, err := exportsOf(name)
		if err != nil {
			return nil, fmt.Errorf("no package %s: %w", name, err)
		}
		maps.Copy(c.exports, more)
	}
	return os.Open(c.exports[name])
}

// elided matches marks of omitted code: { ... }, and a line of three dots.
var elided = regexp.MustCompile(`\{ \.\.\. \}|(?m)^\s*\.\.\.$`)

// check returns the errors of a block.
func (c *blockChecker) check(b block) []error {
	b.code = elided.ReplaceAllStringFunc(b.code, func(s string) string {
		if strings.Contains(s, "{") {
			return "{}"
		}
		return ""
	})
	whole, err := c.parse(b, "", "")
	if err == nil && whole.Name.Name != "p" {
		return c.checkTypes(b, nil, "", "") // a program or a package, with all its imports
	}
	before, after := "", ""
	if err != nil {
		before, after = " func _() error {", "\nreturn nil }"
		if whole, err = c.parse(b, before, after); err != nil {
			return []error{err}
		}
	}
	imported := map[string]bool{}
	for _, i := range whole.Imports {
		imported[path.Base(strings.Trim(i.Path.Value, `"`))] = true
	}
	names := map[string]bool{}
	for _, name := range whole.Unresolved {
		names[name.Name] = !imported[name.Name]
	}
	return c.checkTypes(b, names, before, after)
}

// parse parses a block: a whole file, declarations, or with a function around it statements.
func (c *blockChecker) parse(b block, before, after string) (*ast.File, error) {
	clause := "package p;" + before
	if strings.HasPrefix(b.code, "package ") || strings.Contains(b.code, "\npackage ") {
		clause = ""
	}
	return parser.ParseFile(c.files, "", fmt.Sprintf("%s\n//line %s:%d\n%s%s", clause, b.file, b.line, b.code, after), 0)
}

// checkTypes completes a block with declarations for its unresolved names. If the names have
// several types, it returns the errors of the combination with the fewest.
func (c *blockChecker) checkTypes(b block, names map[string]bool, before, after string) (fewest []error) {
	combinations := []map[string]string{{}}
	for name := range names {
		var more []map[string]string
		for _, declared := range known[name] {
			for _, combination := range combinations {
				with := maps.Clone(combination)
				with[name] = declared
				more = append(more, with)
			}
		}
		if len(more) > 0 {
			combinations = more
		}
	}
	for i, variables := range combinations {
		errs := c.checkWith(b, names, variables, before, after)
		if i == 0 || len(errs) < len(fewest) {
			fewest = errs
		}
	}
	return fewest
}

// checkWith checks a block together with a file that declares its variables.
func (c *blockChecker) checkWith(b block, names map[string]bool, variables map[string]string, before, after string) (errs []error) {
	var text strings.Builder
	for name, declared := range variables {
		fmt.Fprintf(&text, "var %s %s\n", name, declared)
	}
	more, err := parser.ParseFile(c.files, "", "package p\n"+text.String(), 0)
	if err != nil {
		return []error{err}
	}
	needed := map[string]bool{}
	for _, name := range more.Unresolved {
		needed[name.Name] = true
	}
	more, _ = parser.ParseFile(c.files, "", "package p;"+c.imports(needed)+"\n"+text.String(), 0)
	file, err := c.parse(b, c.imports(names)+before, after)
	if err != nil {
		return []error{err}
	}
	conf := types.Config{Importer: c.importer, FakeImportC: true, Error: func(err error) {
		var wrong types.Error
		if !errors.As(err, &wrong) || !wrong.Soft { // soft: an unused variable, or := for one that is there
			errs = append(errs, err)
		}
	}}
	together := []*ast.File{file}
	if len(variables) > 0 {
		together = append(together, more)
	}
	_, _ = conf.Check("p", c.files, together, nil)
	return errs
}

// imports imports the packages among names.
func (c *blockChecker) imports(names map[string]bool) (text string) {
	for name, missing := range names {
		if p, ok := c.paths[name]; ok && missing {
			as := ""
			if name != path.Base(p) {
				as = name
			}
			text += fmt.Sprintf(" import %s %q;", as, p)
		}
	}
	return text
}
