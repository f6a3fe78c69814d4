package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The go command and the checks of the tree pass over a folder with this name.
const baseFolder = "build/counts/.base"

// output runs a command in a folder, and returns what it prints.
func output(dir, name string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("counts: %v in %s: %w\n%s", cmd.Args, dir, err, stderr.Bytes())
	}
	return strings.TrimSpace(string(out)), err
}

// baseOf returns the revision to compare the tree with: the one that has last changed the file, before the commit that
// is checked out, or before the changes that are not committed.
func baseOf(file string) (string, error) {
	tip := "HEAD^"
	if changed, err := output(".", "git", "status", "--porcelain", "--untracked-files=no"); err != nil {
		return "", err
	} else if changed != "" {
		tip = "HEAD"
	}
	base, err := output(".", "git", "rev-list", "-1", tip, "--", file)
	if err == nil && base == "" {
		base, err = output(".", "git", "rev-parse", tip)
	}
	return base, err
}

// extract writes a revision of the tree, or some paths of it, into the folder of the base.
func extract(revision string, paths ...string) error {
	archive := baseFolder + ".tar"
	args := append([]string{"archive", "--output=" + archive, revision, "--"}, paths...)
	if _, err := output(".", "git", args...); err != nil {
		return err
	}
	_, err := output(".", "tar", "-xf", archive, "-C", baseFolder)
	return err
}

// build compiles the program of a tree, without DWARF, which callgrind would read, and its simulated driver. The
// program is started by what has compiled both: callgrind fails where a process of its own ends.
func build(tree, path string) (p program, err error) {
	if _, err := output(tree, goCommand(), "build", "-buildvcs=false", "-ldflags=-w", "-o", path, "./ci/counts/paths"); err != nil {
		return p, err
	}
	driver, err := output(tree, goCommand(), "run", "./cudasim/build")
	return program{path, driver}, err
}

// buildBase compiles the program of this tree with the library of another revision, so that both are measured alike,
// or, where that has another API, its own.
func buildBase(revision, path string) (p program, err error) {
	if err := clear(baseFolder); err != nil {
		return p, err
	}
	if err := extract(revision); err != nil {
		return p, err
	}
	own := filepath.Join(baseFolder, "ci/counts")
	_, none := os.Stat(own)
	if err := os.RemoveAll(own); err != nil {
		return p, err
	}
	if err := os.CopyFS(own, os.DirFS("ci/counts")); err != nil {
		return p, err
	}
	if p, err = build(baseFolder, path); err == nil || none != nil {
		return p, err
	}
	if err := os.RemoveAll(own); err != nil {
		return p, err
	}
	if err := extract(revision, "ci/counts"); err != nil {
		return p, err
	}
	return build(baseFolder, path)
}

func goCommand() string {
	if name := os.Getenv("GO"); name != "" {
		return name
	}
	return "go"
}
