package cudasim

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// rule is one function of testdata/*.c: a statement of the driver API manual or of cudasim.h.
type rule struct {
	name, options string
	leaks         string // the start of a leak that the report shall have; else none
	missing       string
	violates      bool
	races         bool // not to be run under the thread sanitizer
	unreported    bool
}

// rules is a program of testdata, built against a library.
type rules struct {
	program string
	flags   []string
}

func buildRules(t testing.TB, flags ...string) rules {
	t.Helper()
	return buildProgram(t, "testdata/*.c", flags...)
}

func buildProgram(t testing.TB, sources string, flags ...string) rules {
	t.Helper()
	lib, err := build(flags, nil)
	require.NoError(t, err)
	files, err := filepath.Glob(sources)
	require.NoError(t, err)
	cc, err := theCompiler()
	require.NoError(t, err)
	r := rules{filepath.Join(t.TempDir(), "rules"), flags}
	args := slices.Concat(cc.command[1:], flags, []string{
		"-std=c11", "-D_GNU_SOURCE", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread",
		"-Wl,-z,lazy", // a missing function shall be missed when called, not before
		"-o", r.program,
	}, files, []string{lib, "-ldl"})
	out, err := exec.Command(cc.command[0], args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return r
}

// run runs the program with the options of a machine. A rule that hangs ends
// itself; the time here is for a program that cannot.
func (r rules) run(t testing.TB, options, missing string, args ...string) (out []byte, err error) {
	t.Helper()
	var without []string
	if missing != "" {
		without = []string{missing}
	}
	lib, err := build(slices.Concat(r.flags, versionFlags(versionOf(t, options))), without)
	require.NoError(t, err)
	return r.runWith(t, lib, options, args...)
}

// runWith runs the program with that library.
func (r rules) runWith(t testing.TB, lib, options string, args ...string) (out []byte, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, r.program, args...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(lib), "CUDASIM="+options)
	return cmd.CombinedOutput()
}

// versionOf is the version that options ask for, 0 if they do not.
func versionOf(t testing.TB, options string) int {
	for pair := range strings.SplitSeq(options, ",") {
		if text, ok := strings.CutPrefix(pair, "version="); ok {
			version, err := strconv.Atoi(text)
			require.NoError(t, err)
			return version
		}
	}
	return 0
}

func (r rules) list(t testing.TB) (list []rule) {
	t.Helper()
	lib, err := build(r.flags, nil)
	require.NoError(t, err)
	cmd := exec.Command(r.program, "--list")
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(lib))
	out, err := cmd.Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		require.Len(t, f, 7)
		list = append(list, rule{f[0], f[1], f[2], f[3], f[4] == "1", f[5] == "1", f[6] == "1"})
	}
	require.Greater(t, len(list), 200)
	byName := func(a, b rule) int { return strings.Compare(a.name, b.name) }
	slices.SortFunc(list, byName)
	for i := range list[1:] {
		require.NotEqual(t, list[i].name, list[i+1].name, "two rules of one name")
	}
	return list
}

// check runs a rule in a process of its own and looks at the report and the ledger that it leaves.
func (r rules) check(t *testing.T, rule rule) {
	path, folder := filepath.Join(t.TempDir(), "report.json"), t.TempDir()
	options := strings.TrimPrefix(rule.options+",report="+path+",ledger="+folder, ",")
	out, err := r.run(t, options, rule.missing, rule.name)
	require.NoError(t, err, "CUDASIM=%s %s\n%s", options, rule.name, out)
	if rule.unreported {
		assert.NoFileExists(t, path)
		return
	}
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var report Report
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	require.NoError(t, strict.Decode(&report), "%s", text)
	if rule.violates {
		assert.NotEmpty(t, report.Violations)
	} else {
		assert.Empty(t, report.Violations)
	}
	if rule.leaks != "" {
		is := func(leak string) bool { return strings.HasPrefix(leak, rule.leaks) }
		assert.True(t, slices.ContainsFunc(report.Leaks, is), "no leak begins with %q: %q", rule.leaks, report.Leaks)
	} else {
		assert.Empty(t, report.Leaks)
	}
	if len(report.Calls) > 0 { // others are of other processes, which the rule started
		assert.Contains(t, readLedgers(t, folder), inLedger(report))
	}
}

func (r rules) checkAll(t *testing.T) {
	for _, rule := range r.list(t) {
		if rule.missing != "" && len(r.flags) > 0 {
			continue // each is a library more to build, and has nothing to add
		}
		if rule.races && slices.Contains(r.flags, "-fsanitize=thread") {
			continue
		}
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			r.check(t, rule)
		})
	}
}

func TestRules(t *testing.T) {
	t.Parallel()
	buildRules(t).checkAll(t)
}

var sanitize = flag.String("sanitize", "address,undefined", "run the rules once more under these sanitizers; also good: thread")

// The simulator and the rules are both built for it.
func TestRulesUnderSanitizers(t *testing.T) {
	t.Parallel()
	buildRules(t, "-fsanitize="+*sanitize, "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O0").checkAll(t)
}

// A delay is a timed wait by another clock than the usual one, and the runtime of the
// sanitizer stands between. A rule that hangs ends itself.
func TestDelaysUnderTheThreadSanitizer(t *testing.T) {
	t.Parallel()
	if testing.Short() || strings.Contains(*sanitize, "thread") {
		t.Skip("TestRulesUnderSanitizers can do the same")
	}
	if err := runsUnderThreadSanitizer(t.TempDir()); err != nil {
		t.Skip("no thread sanitizer here: ", err)
	}
	r := buildRules(t, "-fsanitize=thread", "-fno-sanitize-recover=all", "-O1")
	delayed := 0
	for _, rule := range r.list(t) {
		if !strings.Contains(rule.options, "delay=") || rule.races {
			continue
		}
		delayed++
		t.Run(rule.name, func(t *testing.T) {
			t.Parallel()
			r.check(t, rule)
		})
	}
	require.Greater(t, delayed, 10)
}

// runsUnderThreadSanitizer reports why an empty program does not: the compiler may lack
// the runtime, and the runtime may not bear the address space of the kernel.
func runsUnderThreadSanitizer(dir string) error {
	cc, err := theCompiler()
	if err != nil {
		return err
	}
	source, program := filepath.Join(dir, "empty.c"), filepath.Join(dir, "empty")
	if err := os.WriteFile(source, []byte("int main(void) { return 0; }\n"), 0o666); err != nil {
		return err
	}
	args := slices.Concat(cc.command[1:], []string{"-fsanitize=thread", "-o", program, source})
	if err := exec.Command(cc.command[0], args...).Run(); err != nil {
		return err
	}
	return exec.Command(program).Run()
}

func TestEnvironment(t *testing.T) {
	t.Parallel()
	r := buildRules(t)
	// It is for humans: it says something only when there is something to say.
	t.Run("a report on standard error names leaks", func(t *testing.T) {
		out, err := r.run(t, "report=-", "", "leaked_device_memory_is_reported")
		require.NoError(t, err)
		assert.Contains(t, string(out), "cuMemAlloc: 4096 bytes at 0x")
		out, err = r.run(t, "report=-", "", "device_memory_is_aligned_to_256")
		require.NoError(t, err)
		assert.Empty(t, string(out))
	})
	// A machine takes little more address space than what is allocated on it, and says so
	// when that is what a process lacks.
	t.Run("little address space is enough", func(t *testing.T) {
		limited := func(kilobytes int, options, rule string) (string, error) {
			shell := fmt.Sprintf("ulimit -v %d && exec \"$0\" \"$1\"", kilobytes)
			out, err := rules{"/bin/sh", nil}.run(t, options, "", "-c", shell, r.program, rule)
			return string(out), err
		}
		const gigabyte = 1 << 20
		// The C library wants 72 MiB for each thread, and a device has two here.
		out, err := limited(4*gigabyte, "devices=16", "sixteen_devices_work_at_once")
		require.NoError(t, err, out)
		assert.Empty(t, out)
		for _, rule := range []string{"copies_move_bytes", "hundred_thousand_stream_ordered_allocations_leave_nothing"} {
			out, err := limited(gigabyte, "", rule)
			require.NoError(t, err, "%s: %s", rule, out)
			assert.Empty(t, out)
		}
		out, err = limited(gigabyte, "", "address_space_may_run_out")
		require.NoError(t, err, out)
		assert.Equal(t, 1, strings.Count(out, "cudasim: the process has no address space for"), out)
	})
	t.Run("a library has the names of its version, and no other version", func(t *testing.T) {
		of13 := rules{r.program, versionFlags(13000)}
		out, err := of13.run(t, "", "", "names_of_13_are_there_with_version_13")
		assert.NoError(t, err, "%s", out)
		out, err = of13.run(t, "version=12040", "", "version_is_known_before_init")
		assert.Error(t, err)
		assert.Contains(t, string(out), "version=12040 needs a library that is built without -DCUDASIM_13")
		lib, err := Build()
		require.NoError(t, err)
		out, err = r.runWith(t, lib, "version=13000", "version_is_known_before_init")
		assert.Error(t, err)
		assert.Contains(t, string(out), "version=13000 needs a library that is built with -DCUDASIM_13")
	})
	t.Run("a folder that is not there costs the ledger, and not the program", func(t *testing.T) {
		out, err := r.run(t, "ledger=/no/such/folder", "", "copies_move_bytes")
		require.NoError(t, err, "%s", out)
		assert.Equal(t, "cudasim: the ledger cannot be written in /no/such/folder: No such file or directory\n", string(out))
	})
	t.Run("bad options abort", func(t *testing.T) {
		for _, options := range []string{"devices=17", "device=2", "nonsense"} {
			out, err := r.run(t, options, "", "version_is_known_before_init")
			var exit *exec.ExitError
			require.ErrorAs(t, err, &exit)
			assert.Contains(t, exit.String(), "abort", options)
			assert.Contains(t, string(out), options)
		}
	})
}
