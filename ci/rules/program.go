package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
)

// rule is a line of rules --list.
type rule struct {
	group, name, basis, text string
	driver                   string // what drivers do where the simulator is stricter on purpose, or ""
}

// program is the path of the program of ci/kit/rules. It finds the driver when it runs.
type program string

// build compiles the program in a folder. The repository is at root.
func build(root, folder string) (program, error) {
	files, err := filepath.Glob(filepath.Join(root, sources, "*.c"))
	if err != nil {
		return "", err
	}
	p := filepath.Join(folder, "rules")
	args := slices.Concat(strings.Fields("-std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Wpedantic -pthread -o"), []string{p}, files, []string{"-ldl"})
	if out, err := emulated.Compiler(args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", sources, err, out)
	}
	return program(p), nil
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
