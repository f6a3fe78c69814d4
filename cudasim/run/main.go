// Command run runs a program on the simulated CUDA driver, which it builds first if
// that was not done yet:
//
//	go run github.com/arrowdevice/arrowdevice/cudasim/run [-machine OPTIONS] [-missing NAMES] program [argument ...]
//
// The program finds the driver as it would find NVIDIA's, by the name libcuda.so.1, and
// in the variables NUMBA_CUDA_DRIVER and CDEVICE_CUDA_DRIVER. It may be anything that
// passes its environment on:
//
//	go run ./cudasim/run -machine devices=2 go run ./examples/devices
//	go run ./cudasim/run -machine devices=2,delay=200,report=- python program.py
//
// The options of the machine are those of the variable CUDASIM, which the README of
// cudasim lists; without -machine the variable stays as it is.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/arrowdevice/arrowdevice/cudasim"
)

func main() {
	machine := flag.String("machine", os.Getenv("CUDASIM"), "`options` of the machine: devices=2,delay=200,report=-")
	missing := flag.String("missing", "", "`names` of functions that the driver lacks, separated by commas")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: run [-machine options] [-missing names] program [argument ...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	fmt.Fprintln(os.Stderr, run(*machine, *missing, flag.Args())) // run returns only if it failed
	os.Exit(1)
}

// run replaces this process by the program, so that signals and the exit status are the
// program's.
func run(machine, missing string, command []string) error {
	version, err := versionOf(machine)
	if err != nil {
		return err
	}
	driver, err := cudasim.Options{Version: version, Missing: list(missing)}.Build()
	if err != nil {
		return err
	}
	program, err := exec.LookPath(command[0])
	if err != nil {
		return fmt.Errorf("cudasim: run: %w", err)
	}
	return fmt.Errorf("cudasim: run: %s: %w", program, syscall.Exec(program, command, environment(os.Environ(), driver, machine)))
}

// versionOf is the version that the options of a machine ask for, 0 if they ask for none:
// those of CUDA 13 need another library.
func versionOf(machine string) (version int, err error) {
	for _, option := range list(machine) {
		if value, found := strings.CutPrefix(option, "version="); found {
			if version, err = strconv.Atoi(value); err != nil {
				return 0, fmt.Errorf("cudasim: run: option %q: %w", option, err)
			}
		}
	}
	return version, nil
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
