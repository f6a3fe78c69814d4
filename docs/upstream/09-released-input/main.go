//go:build cgo

// Importing a released structure ends the process, or is accepted.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"
)

// cSchema is struct ArrowSchema of the specification: cdata hides its fields.
type cSchema struct {
	_       [3]unsafe.Pointer
	_       [2]int64
	_       [2]unsafe.Pointer
	release uintptr
}

// cases import structures whose release is NULL; every one should return an error.
var cases = map[string]func() error{
	"array": func() error {
		_, err := cdata.ImportCArrayWithType(new(cdata.CArrowArray), arrow.Null)
		return err
	},
	"stream": func() error {
		_, err := cdata.ImportCRecordReader(new(cdata.CArrowArrayStream), nil)
		return err
	},
	"schema": func() error {
		var cs cdata.CArrowSchema
		cdata.ExportArrowSchema(arrow.NewSchema([]arrow.Field{{Name: "a", Type: arrow.Null}}, nil), &cs)
		(*cSchema)(unsafe.Pointer(&cs)).release = 0 // as in the source of a move
		_, err := cdata.ImportCArrowSchema(&cs)
		return err
	},
}

func main() {
	if len(os.Args) == 2 { // the child
		if err := cases[os.Args[1]](); err != nil {
			fmt.Println("returned an error:", err)
			return
		}
		fmt.Println("accepted, no error")
		os.Exit(3)
	}
	bad := 0
	for _, name := range []string{"array", "stream", "schema"} {
		out, err := exec.Command(os.Args[0], name).CombinedOutput()
		if err != nil {
			bad++
		}
		for line := range strings.Lines(string(out)) { // without the stack and the program's path
			i := max(0, strings.Index(line, "Assertion"))
			fmt.Printf("released %s: %v; %s", name, err, line[i:])
			break
		}
	}
	if bad > 0 {
		fmt.Printf("reproduced: %d of 3 without an error from the import\n", bad)
		return
	}
	fmt.Println("not reproduced: every import returned an error")
}
