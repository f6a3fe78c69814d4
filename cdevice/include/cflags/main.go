// Command cflags prints the flags with which cgo finds arrow_device.h, for a module that requires this one:
//
//	export CGO_CFLAGS="$(go run github.com/arrowdevice/arrowdevice/cdevice/include/cflags)"
//
// Behind the folder of the header are the flags that CGO_CFLAGS has, or else cgo's own -O2 -g, which CGO_CFLAGS replaces.
package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
)

func main() {
	log.SetFlags(0)
	// In the module cache, or where a replace directive points.
	include := "-I" + goCommand("list", "-f", "{{.Dir}}", "github.com/arrowdevice/arrowdevice/cdevice/include")
	switch { // cgo takes quotes, in which nothing is escaped; gcc $CGO_CFLAGS in a shell does not
	case strings.Contains(include, "'"):
		include = `"` + include + `"`
	case strings.ContainsAny(include, " \t\""):
		include = "'" + include + "'"
	}
	fmt.Println(include, goCommand("env", "CGO_CFLAGS"))
}

func goCommand(arguments ...string) string {
	cmd := exec.Command("go", arguments...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		log.Fatalf("cflags: go %s: %v", strings.Join(arguments, " "), err)
	}
	return strings.TrimSpace(string(out))
}
