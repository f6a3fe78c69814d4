// Command rules writes docs/gpu/rules.md, the table of the rules that ci/kit/rules checks on any driver.
//
//	go run ./ci/rules                  the rules as they are now, and what the simulator does; the GPU column is kept
//	go run ./ci/rules results/rules.txt   fills the GPU column from the output of the kit's section rules, or of its report
package main

import (
	"flag"
	"fmt"
	"os"
)

const pagePath = "docs/gpu/rules.md"

func main() {
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: rules [output of the section rules on a GPU]")
	}
	flag.Parse()
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "rules:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	folder, err := os.MkdirTemp("", "rules-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	program, err := build(".", folder)
	if err != nil {
		return err
	}
	list, err := program.list()
	if err != nil {
		return err
	}
	simulator, err := program.simulate()
	if err != nil {
		return err
	}
	old, err := os.ReadFile(pagePath)
	if err != nil && !os.IsNotExist(err) {
		return err
	}
	gpu := readPage(string(old))
	if len(args) > 0 {
		text, err := os.ReadFile(args[0])
		if err != nil {
			return err
		}
		if gpu, err = readGPU(string(text)); err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
	}
	return os.WriteFile(pagePath, []byte(page(list, simulator, gpu)), 0o666)
}
