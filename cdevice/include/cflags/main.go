// Command cflags prints the flags with which cgo finds arrow_device.h, for a module that requires this one:
//
//	export CGO_CFLAGS="$(go run github.com/arrowdevice/arrowdevice/cdevice/include/cflags)"
//
// They begin with -O2 -g, the default that CGO_CFLAGS replaces.
package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
)

const header = "github.com/arrowdevice/arrowdevice/cdevice/include"

func main() {
	log.SetFlags(0)
	list := exec.Command("go", "list", "-f", "{{.Dir}}", header) // in the module cache, or where a replace directive points
	list.Stderr = os.Stderr
	dir, err := list.Output()
	if err != nil {
		log.Fatalf("cflags: go list %s: %v", header, err)
	}
	include := "-I" + strings.TrimSpace(string(dir))
	if strings.ContainsAny(include, " \t\"") { // cgo takes quotes; gcc $CGO_CFLAGS in a shell does not
		include = "'" + include + "'"
	}
	fmt.Println("-O2 -g", include)
}
