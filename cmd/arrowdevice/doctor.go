package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/doctor"
)

func runDoctor(ctx context.Context, args []string) int {
	f := flags("doctor")
	python := f.String("python", "python3", "look for libraries with this `interpreter`; empty: with none")
	timeout := f.Duration("timeout", time.Minute, "how long a call of the driver, or an import in Python, may take")
	asJSON := f.Bool("json", false, "print the report as JSON")
	if status, ok := parse(f, args); !ok {
		return status
	}
	if err := positive("timeout", *timeout); err != nil {
		fmt.Fprintln(os.Stderr, "arrowdevice:", err)
		return statusUsage
	}
	o := doctor.Options{Python: *python, Timeout: *timeout}
	var clear func()
	o.Progress, clear = progress()
	report, err := doctor.Examine(ctx, o)
	clear()
	if err == nil || *asJSON {
		err = errors.Join(err, write(os.Stdout, *asJSON, report, report.Print))
	}
	if err != nil {
		return failed(err)
	}
	if !report.Usable {
		return statusWrong
	}
	return statusOK
}
