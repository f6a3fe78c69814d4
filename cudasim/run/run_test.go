package main

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim/internal/ledger"
	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
)

var program struct {
	once   sync.Once
	folder string
	err    error
}

func buildProgram(path string, flags ...string) error {
	build := emulated.Compiler(append(flags, "-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror",
		"-o", path, "testdata/program.c", "-ldl")...)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// theProgram builds testdata/program.c, which main removes, and returns the beginning of its command line.
func theProgram(t *testing.T) []string {
	t.Helper()
	program.once.Do(func() {
		if program.folder, program.err = os.MkdirTemp("", "cudasim-run-test-"); program.err != nil {
			return
		}
		program.err = buildProgram(filepath.Join(program.folder, "program"))
	})
	require.NoError(t, program.err)
	return emulated.Words(filepath.Join(program.folder, "program"))
}

// running is the command that runs the program with arguments.
func running(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	return command(t, append(theProgram(t), arguments...)...)
}

type result struct {
	stdout, stderr string
	status         int
}

// outcome runs a command to its end.
func outcome(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		require.NoError(t, err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// violation is what is printed for the one that the program in C makes.
const violation = `cuMemcpyDtoHAsync in stream \d+ of GPU 0 reads memory at .* that cuMemcpyHtoDAsync in stream .*;
    the earlier was queued at program\(\+0x\w+\);
    the later at program\(\+0x\w+\);
    stream .*;
    stream .*`

func TestFindings(t *testing.T) {
	t.Parallel()
	const leaks = `cudasim: leaks:\n  cuDevicePrimaryCtxRetain: 1 references to device 0\n  cuMemAlloc: 4096 bytes at 0x\w+ on device 0, made at program\(\+0x\w+\)\n`
	const one = `^cudasim: violation 1: ` + violation + `\n\n`
	for _, c := range []struct {
		what, how string
		flags     []string
		status    int
		stderr    string
	}{
		{what: "right", how: "0"},
		{what: "right", how: "0", flags: []string{"-leaks"}},
		{what: "right", how: "7", status: 7},
		{what: "right", how: "_exit"},
		{what: "right", how: "killed", status: 137, stderr: "^$"},
		{what: "nothing", how: "0"},
		{what: "fork-after", how: "0"},
		{what: "violate", how: "0", status: 66, stderr: one + "cudasim: 1 violation, 0 leaks\n$"},
		{what: "violate", how: "7", status: 7, stderr: one + "cudasim: 1 violation, 0 leaks\n$"},
		{what: "violate", how: "_exit", status: 66, stderr: one + "cudasim: 1 violation, 0 leaks\n$"},
		{
			what: "violate", how: "0", flags: []string{"-machine", "stacks=0"}, status: 66,
			stderr: "^cudasim: violation 1: .* before cuMemcpyDtoHAsync;\n    stream .*, made by cuStreamCreate;\n    stream .*, made by cuStreamCreate\n\ncudasim: 1 violation, 0 leaks\n$",
		},
		{what: "violate", how: "0", flags: []string{"-machine", "stacks=2"}, status: 66, stderr: `;\n +the later at program\(\+0x\w+\) < program\(`},
		{what: "violate-much", how: "0", status: 66, stderr: one[:len(one)-len(`\n\n`)] + ";\n    37 times\n\ncudasim: 37 violations, 0 leaks\n$"},
		{what: "leak", how: "0", stderr: "^" + leaks + "cudasim: 0 violations, 2 leaks\n$"},
		{what: "leak", how: "0", flags: []string{"-leaks"}, status: 67, stderr: leaks},
		{what: "leak", how: "7", flags: []string{"-leaks"}, status: 7, stderr: leaks},
		{what: "violate-and-leak", how: "0", flags: []string{"-leaks"}, status: 66, stderr: leaks},
		{what: "violate-and-leak", how: "_exit", status: 66, stderr: one + leaks + "cudasim: 1 violation, 2 leaks\n$"},
		{what: "violate-and-leak", how: "abort", status: 134, stderr: one + leaks},
		{what: "violate-and-leak", how: "crash", status: 139, stderr: one + leaks},
		{what: "violate-and-leak", how: "killed", status: 137, stderr: one + leaks},
		{
			what: "leak-much", how: "0",
			stderr: `^cudasim: leaks:\n  cuDevicePrimaryCtxRetain: 1 references to device 0\n  cuEventCreate: 30 leaks on device 0, made at program\(\+0x\w+\)\n` +
				"cudasim: 0 violations, 31 leaks\n$",
		},
		{ // more than the ledger lists
			what: "leak-very-much", how: "0",
			stderr: `^cudasim: leaks:\n  cuDevicePrimaryCtxRetain: 1 references to device 0\n  cuEventCreate: 17000 leaks on device 0, made at program\(\+0x\w+\)\n` +
				`  cuStreamCreate: 1 leak on device 0, made at program\(\+0x\w+\)\ncudasim: 0 violations, 17002 leaks\n$`,
		},
		{ // the user asked for the report as well; only a process that ends as usual writes it
			what: "leak", how: "0", flags: []string{"-machine", "report=-"}, stderr: `(?s)^\{.*"leaks": \[.*\}\n` + leaks,
		},
	} {
		t.Run(strings.Join(append(c.flags, c.what, c.how), " "), func(t *testing.T) {
			t.Parallel()
			if c.how == "abort" || c.how == "crash" {
				emulated.Skip(t, emulated.CrashWithoutAWord)
			}
			o := outcome(t, command(t, slices.Concat(c.flags, theProgram(t), []string{c.what, c.how})...))
			assert.Equal(t, c.status, o.status)
			assert.Empty(t, o.stdout)
			if c.stderr == "" {
				assert.Empty(t, o.stderr)
			} else {
				assert.Regexp(t, c.stderr, o.stderr)
			}
		})
	}
}

// placeOfLeak returns what a program of that name and these flags has as the place of its leak.
func placeOfLeak(t *testing.T, name string, flags ...string) (path, place string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	require.NoError(t, buildProgram(path, flags...))
	o := outcome(t, command(t, append(emulated.Words(path), "leak", "0")...))
	_, place, _ = strings.Cut(o.stderr, ", made at "+name+"(")
	place, _, _ = strings.Cut(place, ")\n")
	return path, place
}

// It is the address that addr2line takes, in a program that is not position-independent, too.
func TestPlaceOfACallIsAnAddressOfTheFile(t *testing.T) {
	t.Parallel()
	for _, flag := range []string{"-pie", "-no-pie"} {
		path, place := placeOfLeak(t, "program", flag, "-f"+strings.TrimPrefix(flag, "-"))
		address, err := strconv.ParseUint(strings.TrimPrefix(place, "+"), 0, 64)
		require.NoError(t, err, flag)
		file, err := elf.Open(path)
		require.NoError(t, err)
		defer file.Close()
		text := file.Section(".text")
		assert.True(t, text.Addr <= address && address < text.Addr+text.Size, "%s: %#x", flag, address)
	}
}

// Calls from the interpreter and from libffi have no place, and those of programs with similar names have.
func TestPlaceOfACallInProgramsWithNamesLikePythons(t *testing.T) {
	t.Parallel()
	for name, has := range map[string]bool{
		"python3.12": false, "python": false, "libffi.so.8": false, "libpython3.13t.so.1.0": false, "libc.so.6": false,
		"python-bench": true, "python_thing.so": true, "libffigure.so": true, "libc.so-test": true,
	} {
		_, place := placeOfLeak(t, name)
		assert.Equal(t, has, place != "", name)
	}
}

func TestPlaceOfACallInAFunctionWithALongName(t *testing.T) {
	t.Parallel()
	_, place := placeOfLeak(t, "program", "-rdynamic", "-Dcall="+strings.Repeat("k", 600))
	assert.Regexp(t, `^k{120}\.\.\.\+0x\w+$`, place)
}

// Parent and child violate, and the child leaks: both are named.
func TestSeveralProcesses(t *testing.T) {
	t.Parallel()
	o := outcome(t, running(t, "fork-before", "0"))
	assert.Equal(t, 66, o.status)
	const process = `process \d+ \(program\): `
	assert.Regexp(t, "^cudasim: violation 1: "+process+violation+"\n\ncudasim: violation 2: "+process+violation+"\n\n"+
		"cudasim: leaks:\n  "+process+"cuDevicePrimaryCtxRetain: .*\n  "+process+"cuMemAlloc: 4096 .*\ncudasim: 2 violations, 2 leaks\n$", o.stderr)
}

// The findings of a child have their texts, though its parent has made the same mistake before the fork.
func TestChildOfAViolator(t *testing.T) {
	t.Parallel()
	o := outcome(t, running(t, "fork-between", "0"))
	const one = `process \d+ \(program\): cudasim_host_read of device memory at .*;\n    the call is at program\(\+0x\w+\)`
	assert.Regexp(t, "^cudasim: violation 1: "+one+"\n\ncudasim: violation 2: "+one+";\n    2 times\n\ncudasim: 3 violations, 0 leaks\n$", o.stderr)
}

// What a process that is left behind has done so far is printed, and it is not waited for.
func TestChildIsLeftBehind(t *testing.T) {
	t.Parallel()
	lifeRead, life, err := os.Pipe()
	require.NoError(t, err)
	defer lifeRead.Close()
	defer life.Close()
	end, endWrite, err := os.Pipe()
	require.NoError(t, err)
	defer end.Close()
	cmd := running(t, "leave-a-child", "0")
	cmd.ExtraFiles = []*os.File{lifeRead, endWrite}
	o := outcome(t, cmd)
	endWrite.Close()
	assert.Zero(t, o.status)
	assert.Regexp(t, `(?s)^cudasim: leaks:\n.*cuMemAlloc: 64 bytes.*\ncudasim: 0 violations, 2 leaks\n$`, o.stderr)
	life.Close()
	last, err := io.ReadAll(end)
	require.NoError(t, err)
	assert.Equal(t, "ended", string(last), "it was alive when run ended")
}

func TestDescriptorsAreInherited(t *testing.T) {
	t.Parallel()
	in, inWrite, err := os.Pipe()
	require.NoError(t, err)
	defer in.Close()
	out, outWrite, err := os.Pipe()
	require.NoError(t, err)
	defer out.Close()
	_, err = inWrite.WriteString("by 3 and 4")
	require.NoError(t, err)
	inWrite.Close()
	cmd := running(t, "use-descriptors", "0")
	cmd.ExtraFiles = []*os.File{in, outWrite}
	o := outcome(t, cmd)
	outWrite.Close()
	assert.Equal(t, result{}, o)
	text, err := io.ReadAll(out)
	require.NoError(t, err)
	assert.Equal(t, "by 3 and 4", string(text))
}

func TestFolderIsRemoved(t *testing.T) {
	t.Parallel()
	temporary := t.TempDir()
	cmd := running(t, "leak", "killed")
	cmd.Env = append(cmd.Env, "TMPDIR="+temporary)
	assert.Equal(t, 137, outcome(t, cmd).status)
	left, err := os.ReadDir(temporary)
	require.NoError(t, err)
	assert.Empty(t, left)

	withComma := filepath.Join(temporary, "a,b")
	require.NoError(t, os.Mkdir(withComma, 0o700))
	cmd = running(t, "leak", "0")
	cmd.Env = append(cmd.Env, "TMPDIR="+withComma)
	o := outcome(t, cmd)
	assert.Equal(t, 1, o.status)
	assert.Contains(t, o.stderr, "has a comma in its name: "+withComma)
}

// What there is no room for is counted.
func TestText(t *testing.T) {
	f := find([]ledger.Machine{{
		Violations: []string{"one; 5 times"}, Repeated: 4, MoreViolations: 3,
		Leaks: []string{"f: 0x1", "f: 0x2", "g: 0x1"}, MoreLeaks: []ledger.More{{Count: 1}}, Kept: 1,
	}})
	assert.Equal(t, `cudasim: violation 1: one;
    5 times

cudasim: 3 violations more

cudasim: leaks:
  f: 2 leaks
  g: 0x1
  1 leak more
cudasim: 8 violations, 4 leaks (and 1 object that libraries keep in caches)
`, string(f.text()))
	assert.Empty(t, find([]ledger.Machine{{Kept: 7}, {}}).text())
}

// bounded is a context that ends a command that hangs; tests do not depend on the time that it has.
func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), mostTime)
	t.Cleanup(cancel)
	return ctx
}
