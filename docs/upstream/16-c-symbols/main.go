//go:build cgo

// The C symbols of the package have no prefix: two major versions do not link into one binary.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"sort"
	"strings"
)

const pkg = "github.com/apache/arrow-go/v18/arrow/cdata"

func run(name string, args ...string) string {
	out, err := exec.Command(name, args...).Output() // nm skips the Go object and says so on stderr
	if err != nil && len(out) == 0 {
		fmt.Printf("not reproduced: cannot run %s: %v\n", name, err)
		os.Exit(0)
	}
	return strings.TrimSpace(string(out))
}

func main() {
	archive := run("go", "list", "-export", "-f", "{{.Export}}", pkg)
	var names []string
	for line := range strings.Lines(run("nm", "-g", "--defined-only", archive)) {
		f := strings.Fields(line)
		// cgo's own symbols carry a hash of the package; what is left comes from the package.
		if len(f) == 3 && !strings.Contains(f[2], "_cgo") {
			names = append(names, f[2])
		}
	}
	sort.Strings(names)
	for _, n := range names {
		fmt.Println(" ", n)
	}
	bad := 0
	for _, n := range names {
		if !strings.Contains(n, "v18") {
			bad++
		}
	}
	if bad > 0 {
		fmt.Printf("reproduced: %d global C symbols without a version in the name\n", bad)
		return
	}
	fmt.Println("not reproduced: every symbol names its version")
}
