//go:build cgo && linux

package callocfail

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed callocfail.h
var header string

// pkg is a package as go list has it.
type pkg struct {
	Dir, ImportPath string
	Standard        bool
	CFiles          []string
	CgoFiles        []string
}

// Overlay writes files to a folder, and returns the one that go's flag -overlay takes. With it, allocations in C files
// of this module that the package in dir and its tests use, but for those of tests, and those by name in its Go files, can fail.
func Overlay(dir, folder string) (string, error) {
	packages, err := dependencies(dir)
	if err != nil {
		return "", err
	}
	o := overlay{folder, map[string]string{}}
	for _, p := range packages {
		if p.Standard || !strings.HasPrefix(p.ImportPath, module) || strings.Contains(p.ImportPath, "/testing/") {
			continue
		}
		if err := o.add(p); err != nil {
			return "", err
		}
	}
	content, err := json.Marshal(map[string]any{"Replace": o.replace})
	if err != nil {
		return "", err
	}
	return o.write("overlay.json", string(content))
}

const module = "github.com/arrowdevice/arrowdevice/"

// dependencies lists the packages that the package in dir and its tests need.
func dependencies(dir string) (all []pkg, err error) {
	list := exec.Command("go", "list", "-deps", "-test", "-json=Dir,ImportPath,Standard,CFiles,CgoFiles")
	list.Dir, list.Stderr = dir, os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("callocfail: go list: %w", err)
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("callocfail: go list: %w", err)
		}
		all = append(all, p)
	}
}

type overlay struct {
	folder  string
	replace map[string]string // the files of the build, by the names that they have for it
}

// add adds the files of a package that allocate, and the header for them.
func (o *overlay) add(p pkg) error {
	changed := false
	change := func(files []string, with func(string) (string, bool)) error {
		for _, name := range files {
			path := filepath.Join(p.Dir, name)
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			instead, ok := with(string(text))
			if !ok {
				continue
			}
			if o.replace[path], err = o.write(name, instead); err != nil {
				return err
			}
			changed = true
		}
		return nil
	}
	err := errors.Join(change(p.CFiles, inC), change(p.CgoFiles, inGo))
	if err != nil || !changed {
		return err
	}
	o.replace[filepath.Join(p.Dir, "callocfail.h")], err = o.write("callocfail.h", header)
	return err
}

// inC is a C file whose allocations can fail.
func inC(text string) (string, bool) {
	return "#define CALLOCFAIL\n#define CALLOCFAIL_C\n#include \"callocfail.h\"\n#line 1\n" + text, strings.Contains(text, "alloc(") || strings.Contains(text, "free(")
}

// inGo is a Go file whose allocations can fail. C.malloc is left: it never returns NULL, and ends the process instead.
func inGo(text string) (string, bool) {
	const imported = "\nimport \"C\"\n"
	if !strings.Contains(text, "C.calloc(") {
		return "", false
	}
	before, after, _ := strings.Cut(text, imported)
	after = strings.NewReplacer("C.calloc(", "C.callocfail_calloc(", "C.free(", "C.callocfail_free(").Replace(after)
	return before + "\n// #include \"callocfail.h\"" + imported + after, true
}

// write writes a file of a new name that ends as a given one.
func (o *overlay) write(name, content string) (path string, err error) {
	path = filepath.Join(o.folder, fmt.Sprintf("%d_%s", len(o.replace), name))
	return path, os.WriteFile(path, []byte(content), 0o600)
}
