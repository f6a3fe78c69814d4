// Command build compiles the simulated CUDA driver and prints the path of its
// libcuda.so.1.
//
//	go run github.com/arrowdevice/arrowdevice/cudasim/build [-o path] [-version N] [missing function ...]
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/arrowdevice/arrowdevice/cudasim"
)

func main() {
	out := flag.String("o", "", "copy the library to this `path`; a folder: as libcuda.so.1 in it")
	version := flag.Int("version", 0, "the `version` that CUDASIM will ask for; from 13000 on it needs another library")
	flag.Usage = func() {
		fmt.Fprintln(flag.CommandLine.Output(), "usage: build [-o path] [-version N] [missing function ...]")
		flag.PrintDefaults()
	}
	flag.Parse()
	path, err := cudasim.Options{Version: *version, Missing: flag.Args()}.Build()
	if err == nil && *out != "" {
		path, err = copyTo(path, *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(path)
}

// copyTo replaces out as a whole: a program that has loaded the old library keeps it.
func copyTo(path, out string) (string, error) {
	if info, err := os.Stat(out); err == nil && info.IsDir() {
		out = filepath.Join(out, filepath.Base(path))
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(filepath.Dir(out), ".libcuda-")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(content)
	if closing := tmp.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Chmod(tmp.Name(), 0o755)
	}
	if err == nil {
		err = os.Rename(tmp.Name(), out)
	}
	return out, err
}
