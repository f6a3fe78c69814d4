//go:build cgo

// Exporting arrays of the default allocator stores unpinned Go pointers in C memory.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/arrow/memory/mallocator"
)

func export(mem memory.Allocator) {
	b := array.NewInt64Builder(mem)
	b.AppendValues([]int64{1, 2, 3}, nil)
	ca := new(cdata.CArrowArray)
	cdata.ExportArrowArray(b.NewArray(), ca, nil)
	cdata.ReleaseCArrowArray(ca)
	fmt.Println("exported and released")
}

func main() {
	switch os.Getenv("UPSTREAM_CHILD") {
	case "default":
		export(memory.DefaultAllocator)
		return
	case "mallocator":
		export(mallocator.NewMallocator())
		return
	}
	_, file, _, _ := runtime.Caller(0)
	died := map[string]bool{}
	for _, mem := range []string{"mallocator", "default"} {
		cmd := exec.Command("go", "run", ".")
		cmd.Dir = filepath.Dir(file)
		cmd.Env = append(os.Environ(), "GOEXPERIMENT=cgocheck2", "UPSTREAM_CHILD="+mem)
		out, err := cmd.CombinedOutput()
		died[mem] = err != nil
		fmt.Printf("%s allocator under cgocheck2: died: %v\n", mem, err != nil)
		for line := range strings.Lines(string(out)) {
			if strings.Contains(line, "fatal error") || strings.Contains(line, "exported and") ||
				strings.HasPrefix(line, "github.com/apache/arrow-go/v18/arrow/cdata.exportArray") {
				name, _, _ := strings.Cut(line, "(")
				fmt.Println(" ", strings.TrimSpace(name))
			}
		}
	}
	if died["default"] && !died["mallocator"] {
		fmt.Println("reproduced: a Go pointer was stored in C memory")
		return
	}
	fmt.Printf("not reproduced: default allocator died: %v, control died: %v\n", died["default"], died["mallocator"])
}
