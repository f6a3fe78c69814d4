package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cudasim"
	"github.com/arrowdevice/arrowdevice/internal/testing/emulated"
	"github.com/arrowdevice/arrowdevice/internal/testing/goroutineleak"
)

const root = "../.."

// built is where the program is, for all tests.
var built = sync.OnceValues(func() (program, error) {
	// Reading them makes go test run again when one changes.
	sources, err := filepath.Glob(root + "/ci/kit/rules/*")
	for _, source := range sources {
		if _, err := os.ReadFile(source); err != nil {
			return "", err
		}
	}
	if err != nil {
		return "", err
	}
	return build(root, folder)
})

var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "rules-"); err != nil {
		panic(err)
	}
	code := goroutineleak.Run(m)
	os.RemoveAll(folder)
	os.Exit(code)
}

func theProgram(t *testing.T) (program, []rule) {
	t.Helper()
	p, err := built()
	require.NoError(t, err)
	list, err := p.list()
	require.NoError(t, err)
	require.Greater(t, len(list), 300)
	return p, list
}

// run runs rules on a driver. The output is complete even if rules differ.
func (p program) run(driver, options string, names ...string) (string, error) {
	cmd := emulated.Command(string(p), names...)
	cmd.Env = append(os.Environ(), "CDEVICE_CUDA_DRIVER="+driver, "CUDASIM="+options)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 1 {
		err = nil
	}
	return string(out), err
}

// printed are the results in the output of the program, on any driver.
func printed(output string) map[string]result {
	lines := map[string]result{}
	for line := range strings.Lines(output) {
		if name, r, ok := readLine(strings.TrimSuffix(line, "\n")); ok {
			lines[name] = r
		}
	}
	return lines
}

// Data and page are of the rules of the program. That the simulator follows each is a test of cudasim.
func TestDataAndPageAreCurrent(t *testing.T) {
	_, list := theProgram(t)
	names := map[string]bool{}
	for _, r := range list {
		require.False(t, names[r.name], "two rules are named %s", r.name)
		names[r.name] = true
		assert.True(t, strings.HasSuffix(r.text, "."), "%s: %s", r.name, r.text)
	}
	data, err := os.ReadFile(filepath.Join(root, dataPath))
	require.NoError(t, err)
	known, err := readData(string(data))
	require.NoError(t, err)
	require.NotEmpty(t, known)
	known.keep(list)
	if known.String() != string(data) {
		t.Errorf("%s is not what go run ./ci/rules writes", dataPath)
	}
	text, err := os.ReadFile(filepath.Join(root, pagePath))
	require.NoError(t, err)
	if page(list, known) != string(text) {
		t.Errorf("%s is not what go run ./ci/rules writes", pagePath)
	}
	assert.Equal(t, len(list)-len(known.in(list, simulated)), strings.Count(known.order(list), "\n")-strings.Count(known.order(list), "then\n"))
}

// The page of the runs names rules that exist.
func TestRunsNameRules(t *testing.T) {
	_, list := theProgram(t)
	text, err := os.ReadFile(filepath.Join(root, "docs/gpu/README.md"))
	require.NoError(t, err)
	names := regexp.MustCompile("`([a-z0-9]+(?:_[a-z0-9]+){3,})`").FindAllStringSubmatch(string(text), -1)
	assert.Greater(t, len(names), 10)
	for _, name := range names {
		assert.True(t, slices.ContainsFunc(list, func(r rule) bool { return r.name == name[1] }), "there is no rule %s", name[1])
	}
}

// Rules after the word then run after those before it, once, and each prints its line when it is done.
func TestRulesRunInParts(t *testing.T) {
	t.Setenv("RULE_PROCESSES", "3")
	p, list := theProgram(t)
	driver, err := cudasim.Build()
	require.NoError(t, err)
	alone, shared := "null_is_no_context", "an_event_never_recorded_is_complete" // the former in a process of its own
	order := func(arguments ...string) (names []string) {
		out, err := p.run(driver, "", arguments...)
		require.NoError(t, err)
		for line := range strings.Lines(out) {
			if name, _, ok := readLine(strings.TrimSuffix(line, "\n")); ok {
				names = append(names, name)
			}
		}
		return names
	}
	assert.Equal(t, []string{shared, alone}, order(alone, shared))
	assert.Equal(t, []string{alone, shared}, order(alone, "then", shared, "then"))
	assert.Equal(t, []string{alone, shared}, order(alone, "then", "then", shared, alone))
	arguments := strings.Fields(results{"copies_of_nothing_succeed": {word: "ok"}}.order(list))
	require.Greater(t, len(arguments), 400)
	names := order(arguments...)
	assert.Equal(t, "copies_of_nothing_succeed", names[len(names)-1])
	assert.Len(t, names, len(arguments)-1)
}

// What rules have shown is printed while others run, by other processes too: the program may be ended before they do.
func TestLinesAreThereAtOnce(t *testing.T) {
	t.Setenv("RULE_SECONDS", "600")
	t.Setenv("RULE_PROCESSES", "2")
	p, _ := theProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(emulated.Slower())*time.Minute)
	defer cancel()
	// The first process waits for ever, and the second runs the other rule.
	cmd := emulated.CommandContext(ctx, string(p), "a_context_that_was_not_attached_is_not_detached", "null_is_no_context")
	cmd.Env = append(os.Environ(), "CDEVICE_CUDA_DRIVER="+wrongDriver(t))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ok null_is_no_context" {
	}
	assert.Equal(t, "ok null_is_no_context", lines.Text())
	cancel()
	assert.Error(t, cmd.Wait())
}

// wrongDriver is a driver that does some things wrong.
func wrongDriver(t *testing.T) string {
	t.Helper()
	driver, err := cudasim.Build()
	require.NoError(t, err)
	wrong := filepath.Join(t.TempDir(), "libwrong.so")
	out, err := emulated.Compiler("-shared", "-fPIC", "-o", wrong, "testdata/wrong.c",
		"-Wl,--no-as-needed", driver, "-Wl,-rpath,"+filepath.Dir(driver)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return wrong
}

// A driver that does things wrong, crashes and hangs loses the rules that meet that, and no others.
func TestDifferencesAreReported(t *testing.T) {
	t.Setenv("RULE_SECONDS", "5")
	t.Setenv("RULE_PROCESSES", "3")
	p, _ := theProgram(t)
	text, err := p.run(wrongDriver(t), "devices=2", "an_event_never_recorded_is_complete", "an_event_is_pending_until_its_stream_gets_there",
		"a_pending_event_may_be_destroyed", "fills_have_three_widths", "copies_of_nothing_succeed", "wide_fills_are_aligned",
		"allocated_memory_is_no_longer_available", "no_memory_of_size_zero", "null_is_no_context", "freed_memory_is_refused",
		"freed_memory_is_not_freed_again", "a_created_context_is_current_until_destroyed", "a_handle_that_is_no_stream_is_refused")
	require.NoError(t, err)
	lines := printed(text)
	assert.Equal(t, result{word: "ok"}, lines["an_event_never_recorded_is_complete"])
	assert.Equal(t, "FAIL", lines["an_event_is_pending_until_its_stream_gets_there"].word)
	assert.Contains(t, lines["an_event_is_pending_until_its_stream_gets_there"].text,
		"cuEventQuery(e) of pending work is CUDA_SUCCESS, not CUDA_ERROR_NOT_READY")
	assert.Equal(t, "ok", lines["a_pending_event_may_be_destroyed"].word)
	assert.Equal(t, "the process ended with signal 6 (also in a process of its own)", lines["fills_have_three_widths"].text)
	assert.Equal(t, "the process ended with signal 6", lines["wide_fills_are_aligned"].text, "the first of its process")
	assert.Equal(t, "ok", lines["copies_of_nothing_succeed"].word)
	assert.Equal(t, "it did not end in 5 seconds", lines["allocated_memory_is_no_longer_available"].text)
	assert.Equal(t, "ok", lines["no_memory_of_size_zero"].word)
	for _, alone := range []string{"null_is_no_context", "freed_memory_is_refused", "freed_memory_is_not_freed_again",
		"a_created_context_is_current_until_destroyed", "a_handle_that_is_no_stream_is_refused"} {
		assert.Equal(t, "ok", lines[alone].word, alone)
	}
	assert.Contains(t, text, "\n13 rules: 9 as they should be, 4 that differ, 0 that need something else\n")
}

// An old driver lacks functions, and a machine has no driver at all.
func TestMissingFunctionsAndDrivers(t *testing.T) {
	p, _ := theProgram(t)
	driver, err := cudasim.Build("cuMemAllocAsync")
	require.NoError(t, err)
	out, err := p.run(driver, "", "pools", "no_memory_of_size_zero", "functions_newer_than_the_version_asked_for_are_not_found")
	require.NoError(t, err)
	lines := printed(out)
	assert.Equal(t, result{word: "skip", text: "the driver has no cuMemAllocAsync"}, lines["no_pool_memory_of_size_zero"])
	assert.Equal(t, result{word: "ok"}, lines["no_memory_of_size_zero"])
	assert.Contains(t, lines["functions_newer_than_the_version_asked_for_are_not_found"].text,
		"the status of cuMemAllocAsync for 11020 is 1, not 0")
	driver, err = cudasim.Build("cuGetProcAddress_v2")
	require.NoError(t, err)
	out, err = p.run(driver, "", "functions")
	require.NoError(t, err)
	lines = printed(out)
	assert.Equal(t, result{word: "skip", text: "the driver has no cuGetProcAddress_v2"}, lines["unknown_functions_are_not_found"])
	assert.Equal(t, result{word: "ok"}, lines["the_function_of_four_arguments_fails_for_unknown_names"])
	driver, err = cudasim.Build()
	require.NoError(t, err)
	out, err = p.run(driver, "devices=0", "all")
	require.NoError(t, err)
	assert.Contains(t, out, "FAIL driver: cuInit(0) is CUDA_ERROR_NO_DEVICE, not CUDA_SUCCESS\n")
	out, err = p.run("/no/such/libcuda.so.1", "", "all")
	require.NoError(t, err)
	assert.Contains(t, out, "FAIL driver: /no/such/libcuda.so.1: cannot open shared object file")
}

// A driver is not asked what it does where the simulator is stricter on purpose.
func TestRulesOfTheSimulatorAlone(t *testing.T) {
	p, _ := theProgram(t)
	simulator, err := cudasim.Build()
	require.NoError(t, err)
	driver, err := cudasim.Build("cudasim_report")
	require.NoError(t, err)
	for driver, want := range map[string]result{
		simulator: {word: "ok"},
		driver:    {word: "skip", text: "stricter than drivers, which take any address as a context, and fail in a later call"},
	} {
		out, err := p.run(driver, "", "garbage_is_no_context", "null_is_no_context")
		require.NoError(t, err)
		lines := printed(out)
		assert.Equal(t, want, lines["garbage_is_no_context"])
		assert.Equal(t, result{word: "ok"}, lines["null_is_no_context"])
	}
}

// A name of no rule is not passed over: the rule that was meant has not run.
func TestUnknownNamesFail(t *testing.T) {
	p, _ := theProgram(t)
	driver, err := cudasim.Build()
	require.NoError(t, err)
	for _, c := range []struct {
		arguments string
		status    int
		want      []string
	}{
		{"null_is_no_context no_such_rule then functionz", 1, []string{
			"FAIL no_such_rule: there is no such rule", "FAIL functionz: there is no such rule", "ok null_is_no_context",
			"1 rules: 1 as they should be, 0 that differ, 0 that need something else"}},
		{"no_such_rule", 1, []string{"FAIL no_such_rule: there is no such rule", "0 rules: "}},
		{"null_is_no_context then null_is_no_context", 0, []string{"ok null_is_no_context"}},
		{"functions then null_is_no_context", 0, []string{"ok null_is_no_context"}},
		{"--lst", 2, nil},
		{"then", 2, nil},
	} {
		cmd := emulated.Command(string(p), strings.Fields(c.arguments)...)
		cmd.Env = append(os.Environ(), "CDEVICE_CUDA_DRIVER="+driver)
		out, _ := cmd.Output()
		assert.Equal(t, c.status, cmd.ProcessState.ExitCode(), c.arguments)
		for _, want := range c.want {
			assert.Contains(t, "\n"+string(out), "\n"+want, c.arguments)
		}
		if c.status != 1 {
			assert.NotContains(t, string(out), "no such rule", c.arguments)
		}
	}
}

func TestOutputMustBeOfAGPU(t *testing.T) {
	const gpu, simulator = "driver: CUDA 13.0\ndevice 0: H100\nok one\n", "driver: CUDA 12.4\ndevice 0: cudasim device 0\nok two\n"
	for text, want := range map[string]string{
		gpu:                                "",
		"":                                 "no lines of rules",
		"== tests\nno rules\n":             "no lines of rules",
		"== speed\n" + gpu:                 "no lines of rules",
		simulator:                          "of the simulator",
		simulator + gpu:                    "of the simulator",
		gpu + simulator:                    "of the simulator",
		"ok one\n":                         `"ok one" comes before any line "driver: "`,
		"ok one\n" + gpu:                   `"ok one" comes before`,
		"device 0: H100\nok one\n":         `"ok one" comes before`,
		gpu + "-- rules: x\nFAIL two: a\n": `"FAIL two: a" comes before`,
		// The run as a whole, and names that it does not have.
		"FAIL driver: no\nFAIL rules: exit status 1\nFAIL two: there is no such rule\n":       "no lines of rules",
		"FAIL driver: no\nFAIL rules: exit status 1\nFAIL two: there is no such rule\n" + gpu: "",
		"== rules\n" + gpu + "\n== libcudf\ndevice 0: cudasim device 0\nok three\n== speed\n": "",
	} {
		r, err := readOutput(text)
		if want == "" {
			assert.NoError(t, err, text)
			assert.Equal(t, results{"one": {word: "ok", driver: h100}}, r)
		} else {
			assert.ErrorContains(t, err, want, text)
		}
	}
}

// What the kit prints has the section in two parts, and its report has them as one.
func TestPartsOfTheSection(t *testing.T) {
	const facts, other = "driver: CUDA 13.0\ndevice 0: H100\n", "driver: CUDA 12.4\ndevice 0: A100\nok three\nok other\n"
	want := results{"one": {word: "ok", driver: h100}, "two": {word: "skip", text: "x", driver: h100}}
	for name, text := range map[string]string{
		"printed": "date: x\n== speed\n" + other + "== rules:first\n" + facts + "ok one\n== peers\n" + other + "== rules\n" + facts +
			"skip two: x\n== libcudf\n" + other + "\ngpu: H100\nrules: skip three: x\n",
		"printed, the part alone": "== rules:first\n" + facts + "ok one\nskip two: x\n== rulesets\n" + other + "== rules: no time is left in this run\n" + other,
		"report": "date: x\n\n== doctor\nx\n\n== speed\n" + other + "\n== rules\n-- rules:first: 2026-11-27 10:00:00, commit X\n" + facts +
			"ok one\n-- rules: 2026-11-27 10:04:00, commit X\n" + facts + "skip two: x\n\n== libcudf\n" + other,
		"file": "-- rules:first: 2026-11-27 10:00:00, commit X\n" + facts + "ok one\n-- rules: 2026-11-27, commit X\n" + facts + "skip two: x\n",
	} {
		for _, text := range []string{text, strings.ReplaceAll(text, "\n", "\r\n")} {
			got, err := readOutput(text)
			assert.NoError(t, err, name)
			assert.Equal(t, want, got, name)
		}
	}
}

// Tabs separate the columns of the data.
func TestTabsBecomeSpaces(t *testing.T) {
	known := ran(t, four, "driver: CUDA\t13.0\ndevice 0: H100\nFAIL two: manual: Two\t| three. here: a\tb\nskip three: needs\tx\n")
	assert.Equal(t, results{
		"two": {"FAIL", "a b", h100, "Two | three."}, "three": {word: "skip", text: "needs x", driver: h100},
	}, known)
}

// Where anything is wrong, data and page stay as they are.
func TestErrorsChangeNothing(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(folder, sources), os.DirFS(filepath.Join(root, sources))))
	headers, err := filepath.Abs(filepath.Join(root, "cudasim"))
	require.NoError(t, err)
	require.NoError(t, os.Symlink(headers, filepath.Join(folder, "cudasim")))
	t.Chdir(folder)
	before, err := os.ReadFile(dataPath)
	require.NoError(t, err)
	unchanged := func(page string) {
		t.Helper()
		data, err := os.ReadFile(dataPath)
		require.NoError(t, err)
		assert.True(t, string(before) == string(data), "the data have changed")
		text, _ := os.ReadFile(pagePath)
		assert.Equal(t, page, string(text))
		for _, path := range []string{dataPath, pagePath} {
			assert.NoFileExists(t, path+".new")
		}
	}
	good, bad := filepath.Join(folder, "good"), filepath.Join(folder, "bad")
	require.NoError(t, os.WriteFile(good, []byte("driver: CUDA 14.0\ndevice 0: X\nok null_is_no_context\n"), 0o666))
	require.NoError(t, os.WriteFile(bad, []byte("ok null_is_no_context\n"), 0o666))
	assert.Error(t, replace(file{dataPath, "data"}, file{pagePath, "new"}), "the page has no folder")
	unchanged("")
	require.NoError(t, os.MkdirAll(filepath.Dir(pagePath), 0o777))
	require.NoError(t, os.WriteFile(pagePath, []byte("page"), 0o666))
	assert.ErrorContains(t, update([]string{good, bad}), bad+`: "ok null_is_no_context" comes before any line "driver: "`)
	unchanged("page")

	require.NoError(t, update([]string{good}))
	data, err := os.ReadFile(dataPath)
	require.NoError(t, err)
	assert.Contains(t, string(data), "driver: CUDA 14.0; device 0: X\n")
	text, err := os.ReadFile(pagePath)
	require.NoError(t, err)
	assert.Contains(t, string(text), "- CUDA 14.0; device 0: X: 1 rules\n")
	_, err = readData(string(data))
	assert.NoError(t, err)
}

// four are rules, of which the last is of the simulator alone.
var four = []rule{
	{"events", "one", "manual", "One.", ""},
	{"events", "two", "seen", "Two | three.", ""},
	{"streams", "three", "reading", "Three.", ""},
	{"streams", "four", "reading", "Four.", "crash | hang"},
}

const (
	h100  = "driver: CUDA 13.0; device 0: H100"
	first = "date: x\n== tests\nok other\n== rules\ndriver: CUDA 13.0\ndevice 0: H100\nok one\n" +
		"FAIL two: seen on drivers: Two | three. here: a | b here: c\nskip three: needs two devices\n" +
		"skip four: stricter than drivers, which crash | hang\n== speed\nok four\n"
)

// ran are the results of runs, one after the other, as the file of the data has them.
func ran(t *testing.T, list []rule, outputs ...string) results {
	t.Helper()
	known := results{}
	for _, output := range outputs {
		run, err := readOutput(output)
		require.NoError(t, err)
		known.add(run)
		known.keep(list)
		again, err := readData(known.String())
		require.NoError(t, err)
		require.Equal(t, known, again)
	}
	return known
}

func TestData(t *testing.T) {
	known := ran(t, four, first)
	assert.Equal(t, dataHead+"# driver 1: "+h100+"\none\t1\tok\nthree\t1\tskip\tneeds two devices\n"+
		"two\t1\tFAIL\ta | b here: c\tTwo | three.\n", known.String())
	for _, bad := range []string{"one\t1\tok\n", "# driver 1: x\none\t2\tok\n", "# driver 1: x\none\n", "\n"} {
		_, err := readData(dataHead + bad)
		assert.ErrorContains(t, err, "is no row", bad)
	}
}

// A run of some of the rules says nothing of the others, and a rule that was skipped keeps what it has shown elsewhere.
func TestRunsAreMerged(t *testing.T) {
	a100 := "driver: CUDA 12.4\ndevice 0: A100\ndevice 1: A100\npeer access between devices 0 and 1: yes\n"
	later := "driver: CUDA 12.4; device 0: A100; device 1: A100; peer access between devices 0 and 1: yes"
	known := ran(t, four, first, a100+"ok three\nskip one: the driver has no cuX\nskip two: no time was left\n")
	assert.Equal(t, results{
		"one": {word: "ok", driver: h100}, "two": {"FAIL", "a | b here: c", h100, "Two | three."}, "three": {word: "ok", driver: later},
	}, known)
	assert.Contains(t, page(four, known), "\n- CUDA 12.4; device 0: A100; device 1: A100; peer access between devices 0 and 1: yes: 1 rules\n- CUDA 13.0; device 0: H100: 2 rules\n")
	known = ran(t, four, first, a100+"skip three: needs peer access\nok two\nFAIL one: manual: One. here: no\n")
	assert.Equal(t, results{
		"one": {"FAIL", "no", later, "One."}, "two": {word: "ok", driver: later}, "three": {word: "skip", text: "needs peer access", driver: later},
	}, known)
	assert.Equal(t, ran(t, four, first), ran(t, four, first, a100+"skip three: no time was left\nok four\nok gone\n"))
	// One output may have several runs.
	assert.Equal(t, ran(t, four, first, a100+"ok two\n"), ran(t, four, strings.Replace(first, "== speed", a100+"ok two\n== speed", 1)))
}

func TestPage(t *testing.T) {
	none := page(four, results{})
	assert.Contains(t, none, "Of 4 rules, GPUs follow 0, differ from 0, and had differed from 0 that were rewritten since; 0 lacked something that they\nneed, 3 have not run, and 1 are of the simulator alone.\n")
	assert.Contains(t, none, "| `two` | seen | Two &#124; three. | events |\n")
	assert.Equal(t, "one\ntwo\nthree\n", results{}.order(four))
	known := ran(t, four, first)
	filled := page(four, known)
	assert.Contains(t, filled, "GPUs follow 1, differ from 1, and had differed from 0 that were rewritten since; 1 lacked something that they\nneed, 0 have not run,")
	assert.NotContains(t, filled, "`one`")
	assert.Contains(t, filled, "## Rules that a GPU does not follow\n\n| rule | as | the rule | the GPU |\n|---|---|---|---|\n"+
		"| `two` | seen | Two &#124; three. | a &#124; b here: c |\n")
	assert.Contains(t, filled, "| needs two devices | `three` |\n")
	assert.Contains(t, filled, "| `four` | reading | Four. | crash &#124; hang |\n")
	assert.Equal(t, "two\nthen\nthree\nthen\none\n", known.order(four))
}

// What a GPU did with a rule that was rewritten since says nothing of the rule as it is now.
func TestRewrittenRules(t *testing.T) {
	list := []rule{{"events", "one", "manual", "One.", ""}, {"events", "two", "manual", "Two.", ""}}
	known := ran(t, list, "driver: CUDA 13.0\nFAIL one: simulator, where the manual is silent: None. here: a\nok two\n")
	filled := page(list, known)
	assert.Contains(t, filled, "differ from 0, and had differed from 1 that were rewritten since;")
	assert.Contains(t, filled, "## Rewritten since a GPU differed\n\n| rule | as | the rule now | the GPU, of the rule as it was |\n|---|---|---|---|\n"+
		"| `one` | manual | One. | a |\n")
	assert.Equal(t, "one\nthen\ntwo\n", known.order(list))
	list[0].text = "None."
	assert.Contains(t, page(list, known), "differ from 1, and had differed from 0 that")
	list[0].driver = "pass"
	known.keep(list)
	assert.NotContains(t, known, "one")
}
