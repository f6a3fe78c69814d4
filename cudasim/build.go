package cudasim

import (
	"crypto/sha256"
	"debug/elf"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
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

// object is all sources, compiled; only its links differ from one library to the other.
const object = "cudasim.o"

var (
	flags = []string{
		"-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-fPIC", "-fvisibility=hidden",
		"-Wall", "-Wextra", "-Wpedantic", "-pthread",
	}
	// A program may load several copies and a real driver: no copy may bind to a function of
	// another.
	linkFlags = []string{"-shared", "-pthread", "-Wl,-Bsymbolic", "-Wl,-soname," + library}
)

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
	missing = slices.Compact(slices.Sorted(slices.Values(missing)))
	if path, err = linked(slices.Concat(flags, more), nil); err == nil && len(missing) > 0 {
		if err = checkExported(path, missing); err == nil {
			path, err = linked(slices.Concat(flags, more), missing)
		}
	}
	if err != nil {
		return "", fmt.Errorf("cudasim: build: %w", err)
	}
	return path, nil
}

// linked returns the library with these compiler flags that lacks the functions in missing.
func linked(flags, missing []string) (path string, err error) {
	cc, err := theCompiler()
	if err != nil {
		return "", err
	}
	key := sha256.New()
	fmt.Fprintf(key, "%q %q %q\n", cc.command, cc.version, flags)
	err = eachSource(func(name string, content []byte) error {
		fmt.Fprintf(key, "%s %d\n%s", name, len(content), content)
		return nil
	})
	if err != nil {
		return "", err
	}
	compiled, err := once(key, object, func(to string) error { return compile(to, slices.Concat(cc.command, flags)) })
	if err != nil {
		return "", err
	}
	fmt.Fprintf(key, "%q %q\n", linkFlags, missing)
	return once(key, library, func(to string) error { return link(to, compiled, cc.command, missing) })
}

// once returns the file of that name for the key. Where there is none, make writes it to a temporary folder, as
// several processes may do so at once.
func once(key hash.Hash, name string, make func(to string) error) (path string, err error) {
	dir, err := cacheDir(hex.EncodeToString(key.Sum(nil))[:32])
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	tmp, err := os.MkdirTemp(dir, "tmp-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := make(filepath.Join(tmp, name)); err != nil {
		return "", err
	}
	return path, os.Rename(filepath.Join(tmp, name), path)
}

// compile compiles all sources into the object file to.
func compile(to string, command []string) error {
	dir := filepath.Dir(to)
	command = append(command, "-ffile-prefix-map="+dir+"=cudasim/src", "-r", "-nostdlib", "-o", to)
	err := eachSource(func(name string, content []byte) error {
		if filepath.Ext(name) == ".c" {
			command = append(command, name)
		}
		return os.WriteFile(filepath.Join(dir, name), content, 0o666)
	})
	if err != nil {
		return err
	}
	return run(dir, command)
}

// link makes a library of the object, which does not export the functions in missing: dlsym does not find them, nor does
// cuGetProcAddress.
func link(to, compiled string, cc, missing []string) error {
	command := slices.Concat(cc, linkFlags, []string{compiled, "-o", to})
	if len(missing) > 0 {
		script := filepath.Join(filepath.Dir(to), "missing.map")
		if err := os.WriteFile(script, []byte("{ local: "+strings.Join(missing, "; ")+"; };\n"), 0o666); err != nil {
			return err
		}
		command = append(command, "-Wl,--version-script="+script)
	}
	return run(filepath.Dir(to), command)
}

func run(dir string, command []string) error {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
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
