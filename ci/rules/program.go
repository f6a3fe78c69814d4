package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
)

// rule is a line of rules --list.
type rule struct {
	group, name, basis, text string
	driver                   string // what drivers do where the simulator is stricter on purpose, or ""
}

// program is the path of the program that ci/kit/rules builds.
type program string

// build compiles the program in a folder. The repository is at root.
func build(root, folder string) (program, error) {
	script, err := filepath.Abs(filepath.Join(root, "ci/kit/rules/build"))
	if err != nil {
		return "", err
	}
	if out, err := exec.Command(script, folder).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", script, err, out)
	}
	return program(filepath.Join(folder, "rules")), nil
}

func (p program) list() (list []rule, err error) {
	out, err := emulated.Command(string(p), "--list").Output()
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 5 {
			return nil, fmt.Errorf("rules --list: %q has %d fields", line, len(f))
		}
		list = append(list, rule{f[0], f[1], f[2], f[3], f[4]})
	}
	return list, nil
}

// run runs rules, all of them by default, on a driver. The output is complete even if rules differ.
func (p program) run(driver, options string, names ...string) (string, error) {
	if len(names) == 0 {
		names = []string{"all"}
	}
	cmd := emulated.Command(string(p), names...)
	cmd.Env = append(os.Environ(), "CDEVICE_CUDA_DRIVER="+driver, "CUDASIM="+options)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		err = nil
	}
	return string(out), err
}

// simulate runs all rules on the simulator: on a driver of CUDA 12, on one of CUDA 13, and on devices without
// peer access that reach pageable memory.
func (p program) simulate() (results, error) {
	all := results{lines: map[string]result{}}
	for _, machine := range []struct {
		version int
		options string
	}{{0, "devices=2"}, {13000, "devices=2"}, {0, "devices=2,peer=0,coherent=2"}} {
		driver, err := cudasim.Options{Version: machine.version}.Build()
		if err != nil {
			return all, err
		}
		out, err := p.run(driver, machine.options)
		if err != nil {
			return all, err
		}
		for name, r := range readOutput(out).lines {
			if before, ok := all.lines[name]; !ok || before.word == "skip" {
				all.lines[name] = r
			}
		}
	}
	return all, nil
}
