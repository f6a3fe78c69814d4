//go:build unix && cgo

// Exporting a slice reads the validity bitmap and writes the count into the array: a data race.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/cdata"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// slice returns two rows with the given bitmap and an unknown number of nulls, as slices have.
func slice(bitmap []byte) arrow.Array {
	data := array.NewData(arrow.PrimitiveTypes.Int64, 2, []*memory.Buffer{memory.NewBufferBytes(bitmap),
		memory.NewBufferBytes(make([]byte, 16))}, nil, array.UnknownNullCount, 0)
	return array.MakeFromData(data)
}

// faults reports whether the export of an array reads a bitmap that, like device memory, the CPU cannot read.
func faults() (fault bool) {
	page, err := syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_NONE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	debug.SetPanicOnFault(true)
	defer func() {
		at, ok := recover().(interface{ Addr() uintptr })
		fault = ok && at.Addr() == uintptr(unsafe.Pointer(unsafe.SliceData(page)))
	}()
	cdata.ExportArrowArray(slice(page), new(cdata.CArrowArray), nil)
	return false
}

func main() {
	if os.Getenv("UPSTREAM_CHILD") != "" {
		for range 100 { // one array, two exports at a time
			arr := slice([]byte{1})
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() { cdata.ExportArrowArray(arr, new(cdata.CArrowArray), nil) })
			}
			wg.Wait()
		}
		return
	}
	fault := faults()
	fmt.Println("export with an unreadable bitmap: memory fault at its first byte:", fault)
	_, file, _, _ := runtime.Caller(0)
	cmd := exec.Command("go", "run", "-race", ".")
	cmd.Dir, cmd.Env = filepath.Dir(file), append(os.Environ(), "UPSTREAM_CHILD=1")
	out, err := cmd.CombinedOutput()
	races := strings.Count(string(out), "WARNING: DATA RACE")
	fmt.Printf("two exports at a time under -race: reports: %d, in NullN: %v, %v\n",
		races, strings.Contains(string(out), "array.(*array).NullN"), err)
	fmt.Println(map[bool]string{true: "reproduced: the export reads the bitmap or writes the count",
		false: "not reproduced: no read, no race"}[fault || races > 0])
}
