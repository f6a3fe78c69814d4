// Command arrowdevice examines a machine for this library.
//
//	go run github.com/arrowdevice/arrowdevice/cmd/arrowdevice doctor
//
// prints the CUDA driver, the GPUs and what they can do, the Python libraries that can exchange data
// with this one, what is wrong, and what to do about it. With --json the
// output is the JSON form of the same report.
//
//	go run github.com/arrowdevice/arrowdevice/cmd/arrowdevice bandwidth
//
// measures copies of a record batch to a GPU and back beside plain and pinned copies of the driver,
// and prints a table, and how far from the pinned limit this library is.
//
// Both work on the simulated driver, and say so. The exit status is 0 if a GPU, or the simulated
// one, can be used, or was measured; 1 if something is wrong; 2 for arguments that are wrong; 130
// after Ctrl-C. With --json there is a document in the cases 0, 1 and 130. docs/doctor.md has an
// example.
//
//	go run github.com/arrowdevice/arrowdevice/cmd/arrowdevice version
//
// prints the version of this module in the program, of Go, and of the platform.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/doctor"
	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/version"
)

// Exit statuses.
const (
	statusOK          = 0
	statusWrong       = 1
	statusUsage       = 2
	statusInterrupted = 130
)

const usage = `usage: arrowdevice COMMAND [FLAG...]

  doctor     the CUDA driver, the GPUs, the Python libraries; what is wrong, and what to do
  bandwidth  the speed of copies to a GPU and back, beside plain and pinned ones
  version    the version of this program

arrowdevice COMMAND -h lists the flags of a command.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	status := run(ctx, os.Args[1:])
	stop()
	os.Exit(status)
}

func run(ctx context.Context, args []string) int {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return statusUsage
	}
	switch command, rest := args[0], args[1:]; command {
	case "doctor":
		return runDoctor(ctx, rest)
	case "bandwidth":
		return runBandwidth(ctx, rest)
	case "version", "-version", "--version":
		return runVersion(rest)
	case doctor.ProbeCommand:
		doctor.Probe(os.Stdout, rest...)
		return statusOK
	case "help", "-h", "-help", "--help":
		fmt.Print(usage)
		return statusOK
	default:
		fmt.Fprintf(os.Stderr, "arrowdevice: no command %q\n%s", command, usage)
		return statusUsage
	}
}

func runVersion(args []string) int {
	if status, ok := parse(flags("version"), args); !ok {
		return status
	}
	if err := write(os.Stdout, false, nil, version.Print); err != nil {
		return failed(err)
	}
	return statusOK
}

// flags are those of a command, which takes no arguments besides.
func flags(command string) *flag.FlagSet {
	f := flag.NewFlagSet(command, flag.ContinueOnError)
	f.Usage = func() {
		fmt.Fprintf(f.Output(), "usage: arrowdevice %s [FLAG...]\n", command)
		f.PrintDefaults()
	}
	return f
}

// parse returns the exit status where the command must not run.
func parse(f *flag.FlagSet, args []string) (status int, ok bool) {
	err := f.Parse(args)
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
		fmt.Fprintln(f.Output(), err)
		f.Usage()
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return statusOK, false
	case err != nil:
		return statusUsage, false
	}
	return statusOK, true
}

// positive is the error of a flag that is not.
func positive(flag string, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("--%s %s: want more than 0", flag, d)
	}
	return nil
}

// failed prints the error of a command.
func failed(err error) int {
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "arrowdevice: interrupted")
		return statusInterrupted
	}
	fmt.Fprintln(os.Stderr, "arrowdevice:", err)
	return statusWrong
}

// write writes a result at once: as JSON, or as forPeople does. A file that does not take all of it is an
// error.
func write(w io.Writer, asJSON bool, result any, forPeople func(io.Writer)) error {
	var text bytes.Buffer
	if asJSON {
		encoder := json.NewEncoder(&text)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(result); err != nil {
			return err
		}
	} else {
		forPeople(&text)
	}
	_, err := w.Write(text.Bytes())
	return err
}

// progress returns functions that show the current step on a line of the terminal, and that clear this line. They do nothing
// where standard error is no terminal.
func progress() (show func(doing string), clear func()) {
	info, err := os.Stderr.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil, func() {}
	}
	var mu sync.Mutex
	line := func(text string) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(os.Stderr, "\r%s\x1b[K", text)
	}
	return func(doing string) { line(doing + " ...") }, func() { line("") }
}
