// Command rules keeps what GPUs have shown of the rules that ci/kit/rules checks on any driver.
//
//	go run ./ci/rules                  writes docs/gpu/rules.md of the rules as they are now
//	go run ./ci/rules OUTPUT...        also takes the results of runs on GPUs, from the output of the kit or of its section rules, or its report
//	go run ./ci/rules -build FOLDER    builds the program there, and the file order: its rules, those first that a GPU should run first
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// Where the files are in the repository.
const (
	sources  = "ci/kit/rules"
	dataPath = sources + "/results.tsv"
	pagePath = "docs/gpu/rules.md"
)

func main() {
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: rules [output of the kit, or of its section rules, on a GPU]... | rules -build FOLDER")
	}
	folder := flag.String("build", "", "build the program of the rules in `FOLDER`, and list its rules in the order of their worth")
	flag.Parse()
	do := func() error { return update(flag.Args()) }
	if *folder != "" {
		do = func() error { return buildKit(*folder) }
	}
	if err := do(); err != nil {
		fmt.Fprintln(os.Stderr, "rules:", err)
		os.Exit(1)
	}
}

// update takes the results of runs, and writes data and page anew.
func update(outputs []string) error {
	var runs []results
	for _, output := range outputs {
		text, err := os.ReadFile(output)
		if err != nil {
			return err
		}
		run, err := readOutput(string(text))
		if err != nil {
			return fmt.Errorf("%s: %w", output, err)
		}
		runs = append(runs, run)
	}
	folder, err := os.MkdirTemp("", "rules-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	list, known, err := load(folder)
	if err != nil {
		return err
	}
	for _, run := range runs {
		known.add(run)
	}
	known.keep(list)
	return replace(file{dataPath, known.String()}, file{pagePath, page(list, known)})
}

type file struct{ path, text string }

// replace replaces files, or none of them where one cannot be written.
func replace(files ...file) error {
	for _, f := range files {
		defer os.Remove(f.path + ".new") // which is gone unless there is an error
		if err := os.WriteFile(f.path+".new", []byte(f.text), 0o666); err != nil {
			return err
		}
	}
	for _, f := range files {
		if err := os.Rename(f.path+".new", f.path); err != nil {
			return err
		}
	}
	return nil
}

func buildKit(folder string) error {
	list, known, err := load(folder)
	if err != nil {
		return err
	}
	fmt.Println(len(list), "rules")
	return os.WriteFile(filepath.Join(folder, "order"), []byte(known.order(list)), 0o666)
}

// load builds the program in a folder, and returns its rules and their results.
func load(folder string) ([]rule, results, error) {
	program, err := build(".", folder)
	if err != nil {
		return nil, results{}, err
	}
	list, err := program.list()
	if err != nil {
		return nil, results{}, err
	}
	data, err := os.ReadFile(dataPath)
	if err != nil {
		return nil, results{}, err
	}
	known, err := readData(string(data))
	return list, known, err
}
