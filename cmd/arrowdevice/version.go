package main

import (
	"os"

	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/version"
)

func runVersion(args []string) int {
	f := flags("version")
	asJSON := f.Bool("json", false, "print it as JSON")
	if status, ok := parse(f, args); !ok {
		return status
	}
	info := version.Read()
	if err := write(os.Stdout, *asJSON, info, info.Print); err != nil {
		return failed(err)
	}
	return statusOK
}
