package cudasim

import (
	"crypto/sha256"
	"debug/elf"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// The sources are embedded, so that the package works from the module cache.
//
//go:embed src/*
var sources embed.FS

// library is the name that programs look for, and the soname.
const library = "libcuda.so.1"

// absent replaces the name of a function that the library lacks.
const absent = "cudasim_absent_"

var flags = []string{
	"-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-fPIC", "-fvisibility=hidden",
	"-Wall", "-Wextra", "-Wpedantic", "-pthread",
	// A program may load several copies and a real driver: no copy may bind to a function of
	// another.
	"-shared", "-Wl,-Bsymbolic", "-Wl,-soname," + library,
}

// Build compiles the simulated driver with the C compiler of this machine ($CC,
// cc or gcc) and returns the path of its libcuda.so.1, for LD_LIBRARY_PATH,
// NUMBA_CUDA_DRIVER and the like. The library lacks the exported functions
// listed in missing ("cuMemAllocAsync", "cuMemAlloc_v2"), as an older driver
// does.
//
// The library is cached in the user's cache directory, keyed by the sources, the flags and the
// compiler's version.
//
// The library is that of [Options.Build] for a driver before version 13.
func Build(missing ...string) (path string, err error) {
	return Options{Missing: missing}.Build()
}

// Build is [Build] for o.Version and o.Missing. Versions from 13000 on need another library than
// earlier ones: a driver before CUDA 13 must not export the names that CUDA 13 added. The other
// options are not part of the library; the environment variable CUDASIM sets them.
func (o Options) Build() (path string, err error) {
	return build(versionFlags(o.Version), o.Missing)
}

// versionFlags returns the compiler flags of a library that can report that version.
func versionFlags(version int) []string {
	if version >= 13000 {
		return []string{"-DCUDASIM_13"}
	}
	return nil
}

// build is Build with further compiler flags.
func build(more, missing []string) (path string, err error) {
	args := slices.Concat(flags, more)
	missing = slices.Compact(slices.Sorted(slices.Values(missing)))
	if len(missing) > 0 {
		whole, err := build(more, nil)
		if err != nil {
			return "", err
		}
		if err := checkExported(whole, missing); err != nil {
			return "", fmt.Errorf("cudasim: build: %w", err)
		}
	}
	for _, name := range missing {
		args = append(args, "-D"+name+"="+absent+name)
	}
	path, err = buildOnce(args)
	if err != nil {
		return "", fmt.Errorf("cudasim: build: %w", err)
	}
	return path, nil
}

func buildOnce(args []string) (path string, err error) {
	cc, err := theCompiler()
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	fmt.Fprintf(hash, "%q %q %q\n", cc.command, cc.version, args)
	err = eachSource(func(name string, content []byte) error {
		fmt.Fprintf(hash, "%s %d\n%s", name, len(content), content)
		return nil
	})
	if err != nil {
		return "", err
	}
	dir, err := cacheDir(hex.EncodeToString(hash.Sum(nil))[:32])
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, library)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	return path, compile(path, slices.Concat(cc.command, args))
}

// compile builds to a temporary file and renames it to path: several processes may do so at once.
func compile(path string, command []string) error {
	tmp, err := os.MkdirTemp(filepath.Dir(path), "tmp-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	command = append(command, "-ffile-prefix-map="+tmp+"=cudasim/src", "-o", library)
	err = eachSource(func(name string, content []byte) error {
		if filepath.Ext(name) == ".c" {
			command = append(command, name)
		}
		return os.WriteFile(filepath.Join(tmp, name), content, 0o666)
	})
	if err != nil {
		return err
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return os.Rename(filepath.Join(tmp, library), path)
}

// checkExported returns an error for a name that the library does not export, such as a misspelled
// one.
func checkExported(path string, names []string) error {
	file, err := elf.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return err
	}
	for _, name := range names {
		is := func(s elf.Symbol) bool { return s.Name == name && s.Section != elf.SHN_UNDEF }
		if !slices.ContainsFunc(symbols, is) {
			return fmt.Errorf("the library has no function %s that could be missing", name)
		}
	}
	return nil
}

func eachSource(do func(name string, content []byte) error) error {
	entries, err := fs.ReadDir(sources, "src")
	if err != nil {
		return err
	}
	for _, e := range entries {
		content, err := sources.ReadFile("src/" + e.Name())
		if err != nil {
			return err
		}
		if err := do(e.Name(), content); err != nil {
			return err
		}
	}
	return nil
}

type compiler struct {
	command []string
	version string // the output of --version
}

var theCompiler = sync.OnceValues(findCompiler)

func findCompiler() (compiler, error) {
	for _, candidate := range []string{os.Getenv("CC"), "cc", "gcc"} {
		command := strings.Fields(candidate) // $CC may be "ccache gcc"
		if len(command) == 0 {
			continue
		}
		if _, err := exec.LookPath(command[0]); err != nil {
			continue
		}
		version, err := exec.Command(command[0], append(command[1:], "--version")...).Output()
		if err != nil {
			return compiler{}, fmt.Errorf("%s --version: %w", candidate, err)
		}
		return compiler{command, string(version)}, nil
	}
	return compiler{}, errors.New("this machine has no C compiler: $CC, cc and gcc were looked for")
}

func cacheDir(name string) (string, error) {
	base, err := os.UserCacheDir()
	if err == nil {
		dir := filepath.Join(base, "arrowdevice", "cudasim", name)
		if err := os.MkdirAll(dir, 0o777); err == nil {
			return dir, nil
		}
	}
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("arrowdevice-%d", os.Getuid()), "cudasim", name)
	return dir, os.MkdirAll(dir, 0o700)
}
