package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/doctor"
	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/terminal"
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
	clear := func() {}
	if terminal.Is(os.Stderr) {
		o.Progress, clear = showProgress(os.Stderr)
	}
	report, err := doctor.Examine(ctx, o)
	clear()
	if err == nil || *asJSON {
		err = errors.Join(err, write(os.Stdout, *asJSON, report, func(w io.Writer) {
			report.Table(w, terminal.Style(terminal.Colours(os.Stdout)), terminal.Width(os.Stdout))
		}))
	}
	if err != nil {
		return failed(err)
	}
	if !report.Usable {
		return statusWrong
	}
	return statusOK
}

// showProgress returns functions that write a line over the one before, and remove it.
func showProgress(w io.Writer) (show func(doing string), clear func()) {
	var mu sync.Mutex
	write := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(w, "\r%s\x1b[K", text)
	}
	return func(doing string) { write(doing + " ...") }, func() { write("") }
}
