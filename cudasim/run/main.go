// Command run runs a program on the simulated CUDA driver, which it builds first if
// that was not done yet, and prints what the program did wrong:
//
//	go run github.com/arrowdevice/arrowdevice/cudasim/run [-machine OPTIONS] [-missing NAMES] [-leaks] program [argument ...]
//
// The program finds the driver as it would find NVIDIA's, by the name libcuda.so.1, and
// in the variables NUMBA_CUDA_DRIVER and CDEVICE_CUDA_DRIVER. It may be anything that
// passes its environment on:
//
//	go run ./cudasim/run -machine devices=2 go run ./examples/devices
//	go run ./cudasim/run go test -count=1 ./...
//	go run ./cudasim/run -machine devices=2,delay=200 python program.py
//
// The options of the machine are those of the variable CUDASIM, which the README of
// cudasim lists; without -machine they are those of the variable. run adds ledger, and stacks=1 where they do not
// say stacks=0 or 2: the report has the line of a Go program, or the place in a program in C, that made each call.
//
// Memory that is released while work uses it is a leak until that work is done: a Go program that looks for
// leaks calls gpu.Flush before it ends.
//
// When the program has ended (exit, crash or kill), run prints violations and leaks of all its
// processes to standard error, and nothing if there are none. Processes that are still
// running are not waited for.
//
// The exit status is the program's unless that is 0; 128+n if signal n ended the program.
// Otherwise it is 66 if there were violations, 67 if there were leaks and -leaks is given, and 0. It
// is 1 if run itself fails. Started by go run, any of these but 0 becomes 1.
//
// The program has the standard streams and all other descriptors of run, and is in its
// process group. SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT and
// SIGWINCH are passed on to it, except those that a terminal sends to both: the signals of
// keys while run is in the foreground. A run that is killed takes the program with it.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/cudasim/internal/ledger"
)

// The exit statuses of a program that ended with 0 and has done something wrong.
const (
	statusViolations = 66
	statusLeaks      = 67
)

func main() {
	machine := flag.String("machine", os.Getenv("CUDASIM"), "`options` of the machine: devices=2,delay=200")
	missing := flag.String("missing", "", "`names` of functions that the driver lacks, separated by commas")
	leaks := flag.Bool("leaks", false, fmt.Sprintf("exit with status %d if there are leaks, and the program with 0", statusLeaks))
	flag.Usage = func() {
		out := flag.CommandLine.Output()
		fmt.Fprintln(out, "usage: run [-machine options] [-missing names] [-leaks] program [argument ...]")
		flag.PrintDefaults()
		fmt.Fprintf(out, "The exit status is the program's. If that is 0, it is %d if there were violations.\n", statusViolations)
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	status, err := run(*machine, *missing, *leaks, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "cudasim: run:", strings.TrimPrefix(err.Error(), "cudasim: "))
	}
	os.Exit(status)
}

// run runs the program and prints what the ledgers of its processes have. The status is that of the
// command, and not 0 if err is not nil.
func run(machine, missing string, leaks bool, command []string) (status int, err error) {
	version, err := versionOf(machine)
	if err != nil {
		return 1, err
	}
	driver, err := cudasim.Options{Version: version, Missing: list(missing)}.Build()
	if err != nil {
		return 1, err
	}
	program, err := exec.LookPath(command[0])
	if err != nil {
		return 1, err
	}
	folder, err := newFolder()
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(folder)
	env := environment(os.Environ(), driver, optionsOf(machine, folder))
	if status, err = supervise(program, command, env); err != nil {
		return 1, fmt.Errorf("%s: %w", program, err)
	}
	machines, err := ledger.Read(folder)
	if err != nil {
		return max(1, status), err
	}
	f := find(machines)
	signal.Ignore(syscall.SIGPIPE) // standard error may lead nowhere: the status is worth returning
	_, _ = os.Stderr.Write(f.text())
	switch {
	case status != 0:
	case f.violations > 0:
		status = statusViolations
	case leaks && f.leaks > 0:
		status = statusLeaks
	}
	return status, nil
}

// newFolder returns a private folder for ledgers, whose name can be the value of an option.
func newFolder() (string, error) {
	folder, err := os.MkdirTemp("", "cudasim-")
	if err != nil {
		return "", err
	}
	path, err := filepath.Abs(folder)
	if err == nil && strings.Contains(path, ",") {
		err = errors.New("the folder of temporary files has a comma in its name: " + path)
	}
	if err != nil {
		os.Remove(folder)
	}
	return path, err
}

// versionOf is the version that the options of a machine ask for, 0 if they ask for none:
// those of CUDA 13 need another library.
func versionOf(machine string) (version int, err error) {
	for _, option := range list(machine) {
		if value, found := strings.CutPrefix(option, "version="); found {
			if version, err = strconv.Atoi(value); err != nil {
				return 0, fmt.Errorf("option %q: %w", option, err)
			}
		}
	}
	return version, nil
}

// optionsOf are those of the machine of a run. The user's come behind the defaults of run, which they replace.
func optionsOf(machine, folder string) string {
	return strings.Join(append([]string{"stacks=1"}, append(list(machine), "ledger="+folder)...), ",")
}

func list(names string) []string {
	return strings.FieldsFunc(names, func(r rune) bool { return r == ',' })
}

// environment is of with the variables by which a program finds the driver.
func environment(of []string, driver, machine string) []string {
	set := map[string]string{
		"LD_LIBRARY_PATH":     filepath.Dir(driver),
		"NUMBA_CUDA_DRIVER":   driver,
		"CDEVICE_CUDA_DRIVER": driver,
		"CUDASIM":             machine,
	}
	var env []string
	for _, variable := range of {
		name, value, _ := strings.Cut(variable, "=")
		switch _, ours := set[name]; {
		case !ours: // C takes the first of two variables of one name
			env = append(env, variable)
		case name == "LD_LIBRARY_PATH" && value != "":
			set[name] += string(filepath.ListSeparator) + value
		}
	}
	for name, value := range set {
		env = append(env, name+"="+value)
	}
	return env
}
