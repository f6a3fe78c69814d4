// Package nilargs lists, for tests, the arguments of a package's public functions that can
// be nil. A test that has a row for each of them notices a new function.
package nilargs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"sort"
	"strings"
	"testing"
)

// Of returns the arguments of the public functions and methods of the package that can be nil, as
// "CopyToDevice(ctx)" and "RecordBatch.CopyTo(dev)"; an option is "Import(opts...)". Receivers and
// slices are left out: a method of a nil pointer panics as any does, and a nil slice is an
// empty one. So are methods of a public package that are promoted from an embedded type of it. tags are build
// tags.
func Of(t testing.TB, path string, tags ...string) []string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("there is no go command, which lists the functions: tests of Windows under wine have none")
	}
	pkg := load(t, path, tags)
	found := map[string]bool{}
	add := func(name string, f *types.Func) {
		signature := f.Type().(*types.Signature)
		for i := range signature.Params().Len() {
			p := signature.Params().At(i)
			variadic := signature.Variadic() && i == signature.Params().Len()-1
			kind := p.Type()
			if variadic {
				kind = kind.(*types.Slice).Elem()
			}
			if !nilable(kind) {
				continue
			}
			argument := p.Name()
			if argument == "" || argument == "_" {
				argument = fmt.Sprintf("%d", i)
			}
			if variadic {
				argument += "..."
			}
			found[name+"("+argument+")"] = true
		}
	}
	for _, name := range pkg.Scope().Names() {
		switch object := pkg.Scope().Lookup(name).(type) {
		case *types.Func:
			if object.Exported() {
				add(name, object)
			}
		case *types.TypeName:
			if object.Exported() {
				eachMethod(pkg, object, func(f *types.Func) { add(name+"."+f.Name(), f) })
			}
		}
	}
	all := make([]string, 0, len(found))
	for name := range found {
		all = append(all, name)
	}
	sort.Strings(all)
	return all
}

// eachMethod calls do for the exported methods of a type that are of its package, or that it has
// from an embedded type of an internal package.
func eachMethod(pkg *types.Package, object *types.TypeName, do func(*types.Func)) {
	if in, ok := object.Type().Underlying().(*types.Interface); ok { // embedded ones have rows of their own
		for f := range in.ExplicitMethods() {
			if f.Exported() {
				do(f)
			}
		}
		return
	}
	set := types.NewMethodSet(types.NewPointer(object.Type()))
	for method := range set.Methods() {
		f := method.Obj().(*types.Func)
		if f.Exported() && (f.Pkg() == pkg || strings.Contains(f.Pkg().Path(), "/internal/")) {
			do(f)
		}
	}
}

func nilable(t types.Type) bool {
	switch u := t.Underlying().(type) {
	case *types.Pointer, *types.Interface, *types.Signature, *types.Map, *types.Chan:
		return true
	case *types.Basic:
		return u.Kind() == types.UnsafePointer
	}
	return false
}

// load reads the compiler's export data of the package.
func load(t testing.TB, path string, tags []string) *types.Package {
	t.Helper()
	list := exec.Command("go", "list", "-deps", "-export", "-json=ImportPath,Export", "-tags="+strings.Join(tags, ","), path)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list %s: %v", path, err)
	}
	files := map[string]string{}
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		files[p.ImportPath] = p.Export
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(files[path]) }
	pkg, err := importer.ForCompiler(token.NewFileSet(), "gc", lookup).Import(path)
	if err != nil {
		t.Fatal(err)
	}
	return pkg
}

// Row describes a function's behaviour with an argument that is nil.
type Row struct {
	// Call calls the function with nil for one argument, and with good values for the others.
	Call func() error
	// Want is a part of the error, or of the value that it panics with; empty: nil is allowed.
	Want string
	// Panics is for functions without an error result that have no other way out.
	Panics bool
	// In is the package whose test has the row, of a method of an interface that this package does not
	// implement. Nothing else is set then.
	In string
}

// Check calls each row, and fails unless the package's arguments that can be nil are those that
// have a row. is is the error that errors must wrap; nil: any error.
func Check(t *testing.T, path string, is error, rows map[string]Row, tags ...string) {
	t.Helper()
	arguments := Of(t, path, tags...)
	for _, name := range arguments {
		if _, ok := rows[name]; !ok {
			t.Errorf("%s has no row: what does a nil argument do?", name)
		}
	}
	for name := range rows {
		if !slices.Contains(arguments, name) {
			t.Errorf("%s: there is no such argument any more", name)
		}
	}
	Run(t, is, rows)
}

// Run calls each row. It is for more rows of arguments that [Check] has checked.
func Run(t *testing.T, is error, rows map[string]Row) {
	t.Helper()
	for name, row := range rows {
		t.Run(name, func(t *testing.T) {
			if row.In != "" {
				return
			}
			err, panicked := call(row.Call)
			switch {
			case panicked != row.Panics:
				t.Errorf("panicked: %v (%v)", panicked, err)
			case row.Want == "" && err != nil:
				t.Errorf("nil is allowed, and fails: %v", err)
			case row.Want != "" && (err == nil || !strings.Contains(err.Error(), row.Want)):
				t.Errorf("got %v, want %q", err, row.Want)
			case row.Want != "" && is != nil && !errors.Is(err, is):
				t.Errorf("%v does not wrap %v", err, is)
			}
		})
	}
}

func call(f func() error) (err error, panicked bool) {
	defer func() {
		if v := recover(); v != nil {
			panicked = true
			if e, ok := v.(error); ok {
				err = e
			} else {
				err = fmt.Errorf("%v", v)
			}
		}
	}()
	return f(), false
}
