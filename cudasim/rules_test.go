package cudasim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
)

// rules is a program in C, built against a library.
type rules struct {
	program string
	flags   []string
}

// buildRules builds the program of ci/kit/rules, which states what a driver does, with the rules of the simulator itself.
func buildRules(t testing.TB, flags ...string) rules {
	t.Helper()
	return buildProgram(t, "../ci/kit/rules/*.c testdata/*.c", flags...)
}

func buildProgram(t testing.TB, sources string, flags ...string) rules {
	t.Helper()
	var files []string
	for pattern := range strings.FieldsSeq(sources) {
		found, err := filepath.Glob(pattern)
		require.NoError(t, err)
		files = append(files, found...)
	}
	cc, err := theCompiler()
	require.NoError(t, err)
	r := rules{filepath.Join(t.TempDir(), "rules"), flags}
	args := slices.Concat(cc.command[1:], flags, []string{
		"-std=c11", "-D_GNU_SOURCE", "-g", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread",
		"-o", r.program,
	}, files, []string{"-ldl"})
	out, err := exec.Command(cc.command[0], args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return r
}

// run runs the program with the options of a machine, on a library without a function. A rule that hangs is ended;
// the time here is for a program that does not do so.
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
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(emulated.Slower())*10*time.Minute)
	defer cancel()
	cmd := emulated.CommandContext(ctx, r.program, args...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Dir(lib), "CDEVICE_CUDA_DRIVER="+lib, "CUDASIM="+options,
		fmt.Sprint("RULE_SECONDS=", 180*emulated.Slower()))
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

var only = flag.String("only", "", "a regular expression: TestRules and TestOrder run only rules and programs of such names")

// chosen reports whether a rule or program of that name runs.
func chosen(t testing.TB, name string) bool {
	t.Helper()
	matches, err := regexp.MatchString(*only, name)
	require.NoError(t, err)
	return matches
}

// list returns the names of the rules by their groups.
func (r rules) list(t testing.TB) map[string][]string {
	t.Helper()
	out, err := r.run(t, "", "", "--list")
	require.NoError(t, err, "%s", out)
	groups, names := map[string][]string{}, map[string]bool{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(line, "\t")
		require.Len(t, f, 5)
		require.False(t, names[f[1]], "two rules are named %s", f[1])
		names[f[1]] = true
		if chosen(t, f[1]) {
			groups[f[0]] = append(groups[f[0]], f[1])
		}
	}
	require.NotEmpty(t, groups, "rules named %s", *only)
	return groups
}

// simulator is the group of the rules of testdata. Those of the other groups run on any driver.
const simulator = "simulator"

// ofTheDriver returns the rules that run on any driver.
func ofTheDriver(t testing.TB, groups map[string][]string) (list []string) {
	t.Helper()
	for group, names := range groups {
		if group != simulator {
			list = append(list, names...)
		}
	}
	require.True(t, len(list) > 100 || *only != "")
	return list
}

var resultLine = regexp.MustCompile(`(?m)^(ok|FAIL|skip) (\w+)(?:: (.*))?$`)

// follow runs rules, or groups of them, on a machine; none, if there are no names. A rule that the simulator does not
// follow fails the test, and so do violations and objects that it leaves. It returns why rules were skipped, "" for those
// that were not.
func (r rules) follow(t *testing.T, options string, names ...string) map[string]string {
	t.Helper()
	if len(names) == 0 {
		return nil
	}
	out, err := r.run(t, options, "", names...)
	results := map[string]string{}
	for _, m := range resultLine.FindAllSubmatch(out, -1) {
		word, name, text := string(m[1]), string(m[2]), string(m[3])
		assert.NotEqual(t, "FAIL", word, "CUDASIM=%s rules %s: %s", options, name, text)
		results[name] = ""
		if word == "skip" {
			results[name] = text
		}
	}
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != 1 {
		require.NoError(t, err, "%s", out)
	}
	require.Contains(t, string(out), fmt.Sprintf("\n%d rules: ", len(results)), "%s", out)
	if t.Failed() {
		t.Logf("%s", out)
	}
	return results
}

// machines are the options of those on which a driver's rules run, each rule on the machines that have what it needs.
var machines = []string{
	"",
	"devices=2",
	"devices=2,version=13000",
	"devices=2,peer=0",
	"devices=2,schedule=random,delay=100",
	"devices=2,primary=stable",
	"devices=2," + lazy,
	"devices=2,coherent=2",
}

func TestRules(t *testing.T) {
	t.Parallel()
	r := buildRules(t)
	t.Run("driver", r.followDriver)
	t.Run("simulator", r.followOwn)
	t.Run("environment", r.environment)
}

// followDriver runs the rules of the driver on all machines.
func (r rules) followDriver(t *testing.T) {
	names := ofTheDriver(t, r.list(t))
	var followed sync.Map
	var wait sync.WaitGroup // the processes sleep most of the time
	for _, options := range machines {
		wait.Go(func() {
			for rule, skipped := range r.follow(t, options, names...) {
				if skipped == "" {
					followed.Store(rule, true)
				}
			}
		})
	}
	wait.Wait()
	for _, rule := range names {
		_, ok := followed.Load(rule)
		assert.True(t, ok, "%s: skipped on every machine", rule)
	}
}

// followOwn runs the rules of the simulator: those that are of CUDA 13 are skipped by the library of before.
func (r rules) followOwn(t *testing.T) {
	names := r.list(t)[simulator]
	require.True(t, len(names) > 100 || *only != "")
	var wait sync.WaitGroup
	for part := range slices.Chunk(names, len(names)/4+1) {
		wait.Go(func() {
			report := "report=" + filepath.Join(t.TempDir(), "report.json")
			var of13 []string
			for name, skipped := range r.follow(t, report, part...) {
				if skipped != "" && skipped != itsCopiesRace && skipped != emulatorsMemory {
					of13 = append(of13, name)
				}
			}
			if len(of13) == 0 {
				return
			}
			for name, skipped := range r.follow(t, "version=13000,"+report, of13...) {
				assert.Empty(t, skipped, name)
			}
		})
	}
	wait.Wait()
}

const (
	itsCopiesRace   = "its copies race"           // why rules are skipped under the thread sanitizer
	emulatorsMemory = "the emulator takes memory" // why rules that measure it are skipped under an emulator
)

var sanitize = flag.String("sanitize", "address,undefined", "run the rules once more under these sanitizers; also good: thread")

// The simulator and the rules are both built for it.
func TestRulesUnderSanitizers(t *testing.T) {
	t.Parallel()
	emulated.Skip(t, emulated.ProcessIsTraced)
	r := buildRules(t, "-fsanitize="+*sanitize, "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O0")
	r.followOwn(t)
	var wait sync.WaitGroup
	for _, options := range machines[1:3] {
		wait.Go(func() { r.follow(t, options, ofTheDriver(t, r.list(t))...) })
	}
	wait.Wait()
}

// A delay is a timed wait by another clock than the usual one, and the runtime of the sanitizer stands between.
func TestDelaysUnderTheThreadSanitizer(t *testing.T) {
	t.Parallel()
	if testing.Short() || strings.Contains(*sanitize, "thread") {
		t.Skip("TestRulesUnderSanitizers can do the same")
	}
	if err := runsUnderThreadSanitizer(t.TempDir()); err != nil {
		t.Skip("no thread sanitizer here: ", err)
	}
	r := buildRules(t, "-fsanitize=thread", "-fno-sanitize-recover=all", "-O1")
	r.follow(t, "devices=2,schedule=random,delay=100", "events", "streams")
	r.follow(t, "", "a_delay_is_waited_out", "a_shut_down_ends_waits", "many_threads_do_not_disturb_each_other_at_random")
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
	return emulated.Command(program).Run()
}

// environment tests what a machine takes from its process, and leaves there.
func (r rules) environment(t *testing.T) {
	t.Run("a report is written at exit and has the keys of Report", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "report.json")
		r.follow(t, "report="+path, "leaked_events_are_reported")
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		var report Report
		strict := json.NewDecoder(bytes.NewReader(text))
		strict.DisallowUnknownFields()
		require.NoError(t, strict.Decode(&report), "%s", text)
		assert.Len(t, report.Leaks, 2)
		path += ".none"
		r.follow(t, "report="+path, "configured_options_take_the_place_of_the_environment")
		assert.NoFileExists(t, path)
	})
	// It is for humans: it says something only when there is something to say.
	t.Run("a report on standard error names leaks", func(t *testing.T) {
		out, err := r.run(t, "report=-", "", "leaked_device_memory_is_reported")
		require.NoError(t, err)
		assert.Contains(t, string(out), "cuMemAlloc: 4096 bytes at 0x")
		out, err = r.run(t, "report=-", "", "a_primary_context_gets_a_new_handle_by_default")
		require.NoError(t, err)
		assert.NotContains(t, string(out), "leaks")
	})
	// A machine takes little more address space than what is allocated on it, and says so
	// when that is what a process lacks.
	t.Run("little address space is enough", func(t *testing.T) {
		emulated.Skip(t, emulated.AddressSpaceIsGivenBack)
		limited := func(kilobytes int, rule string) string {
			shell := fmt.Sprintf("ulimit -v %d && exec \"$0\" \"$1\"", kilobytes)
			out, err := rules{"/bin/sh", nil}.run(t, "", "", "-c", shell, r.program, rule)
			require.NoError(t, err, "%s: %s", rule, out)
			assert.Contains(t, string(out), "\nok "+rule+"\n")
			return string(out)
		}
		const gigabyte = 1 << 20
		// The C library wants 72 MiB for each thread, and a device has two here.
		limited(4*gigabyte, "sixteen_devices_work_at_once")
		limited(gigabyte, "synchronous_copies_move_bytes")
		limited(gigabyte, "hundred_thousand_stream_ordered_allocations_leave_nothing")
		out := limited(gigabyte, "address_space_may_run_out")
		assert.Equal(t, 1, strings.Count(out, "cudasim: the process has no address space for"), out)
	})
	// order calls the driver in its own process, and ends by the signal of the abort.
	order := buildOrder(t)
	aborts := func(t *testing.T, lib, options, message string) {
		out, err := order.runWith(t, lib, options, "a_wait_for_an_event", "right", "1")
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit)
		assert.Contains(t, exit.String(), "abort", options)
		assert.Contains(t, string(out), message)
	}
	t.Run("a library has the names of its version, and no other version", func(t *testing.T) {
		lib, err := Build()
		require.NoError(t, err)
		aborts(t, lib, "version=13000", "version=13000 needs a library that is built with -DCUDASIM_13")
		of13, err := Options{Version: 13000}.Build()
		require.NoError(t, err)
		aborts(t, of13, "version=12040", "version=12040 needs a library that is built without -DCUDASIM_13")
		out, err := r.runWith(t, of13, "", "names_of_13_are_there_with_version_13")
		require.NoError(t, err)
		assert.Contains(t, string(out), "\nok names_of_13")
	})
	t.Run("a folder that is not there costs the ledger, and not the program", func(t *testing.T) {
		lib, err := Build()
		require.NoError(t, err)
		out, err := order.runWith(t, lib, "ledger=/no/such/folder", "a_wait_for_an_event", "right", "1")
		require.NoError(t, err, "%s", out)
		assert.Equal(t, "cudasim: the ledger cannot be written in /no/such/folder: No such file or directory\n", string(out))
	})
	t.Run("bad options abort", func(t *testing.T) {
		lib, err := Build()
		require.NoError(t, err)
		for _, options := range []string{"devices=17", "device=2", "nonsense"} {
			aborts(t, lib, options, options)
		}
	})
}
