package main

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

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

// The page has the rules of the program, and the simulator follows each of them: that is a test of cudasim.
func TestPageHasTheRules(t *testing.T) {
	_, list := theProgram(t)
	text, err := os.ReadFile(filepath.Join(root, pagePath))
	require.NoError(t, err)
	passed := results{lines: map[string]result{}}
	for _, r := range list {
		require.NotContains(t, passed.lines, r.name, "two rules of one name")
		passed.lines[r.name] = result{word: "ok"}
		assert.True(t, strings.HasSuffix(r.text, "."), "%s: %s", r.name, r.text)
	}
	if page(list, passed, readPage(string(text))) != string(text) {
		t.Error("docs/gpu/rules.md is not what go run ./ci/rules writes")
	}
}

// A driver that does things wrong, crashes and hangs loses the rules that meet that, and no others.
func TestDifferencesAreReported(t *testing.T) {
	t.Setenv("RULE_SECONDS", "5")
	t.Setenv("RULE_PROCESSES", "3")
	p, _ := theProgram(t)
	driver, err := cudasim.Build()
	require.NoError(t, err)
	wrong := filepath.Join(t.TempDir(), "libwrong.so")
	out, err := emulated.Compiler("-shared", "-fPIC", "-o", wrong, "testdata/wrong.c",
		"-Wl,--no-as-needed", driver, "-Wl,-rpath,"+filepath.Dir(driver)).CombinedOutput()
	require.NoError(t, err, "%s", out)
	text, err := p.run(wrong, "devices=2", "an_event_never_recorded_is_complete", "an_event_is_pending_until_its_stream_gets_there",
		"a_pending_event_may_be_destroyed", "fills_have_three_widths", "copies_of_nothing_succeed", "wide_fills_are_aligned",
		"allocated_memory_is_no_longer_available", "no_memory_of_size_zero", "null_is_no_context", "freed_memory_is_refused",
		"freed_memory_is_not_freed_again", "a_created_context_is_current_until_destroyed", "a_handle_that_is_no_stream_is_refused")
	require.NoError(t, err)
	lines := readOutput(text).lines
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
	lines := readOutput(out).lines
	assert.Equal(t, result{word: "skip", text: "the driver has no cuMemAllocAsync"}, lines["no_pool_memory_of_size_zero"])
	assert.Equal(t, result{word: "ok"}, lines["no_memory_of_size_zero"])
	assert.Contains(t, lines["functions_newer_than_the_version_asked_for_are_not_found"].text,
		"the status of cuMemAllocAsync for 11020 is 1, not 0")
	driver, err = cudasim.Build("cuGetProcAddress_v2")
	require.NoError(t, err)
	out, err = p.run(driver, "", "functions")
	require.NoError(t, err)
	lines = readOutput(out).lines
	assert.Equal(t, result{word: "skip", text: "the driver has no cuGetProcAddress_v2"}, lines["unknown_functions_are_not_found"])
	assert.Equal(t, result{word: "ok"}, lines["the_function_of_four_arguments_fails_for_unknown_names"])
	driver, err = cudasim.Build()
	require.NoError(t, err)
	out, err = p.run(driver, "devices=0")
	require.NoError(t, err)
	assert.Contains(t, out, "FAIL driver: cuInit(0) is CUDA_ERROR_NO_DEVICE, not CUDA_SUCCESS\n")
	out, err = p.run("/no/such/libcuda.so.1", "")
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
		lines := readOutput(out).lines
		assert.Equal(t, want, lines["garbage_is_no_context"])
		assert.Equal(t, result{word: "ok"}, lines["null_is_no_context"])
	}
}

func TestOutputMustBeOfAGPU(t *testing.T) {
	_, err := readGPU("driver: CUDA 13.0\ndevice 0: H100\nok one\n")
	assert.NoError(t, err)
	_, err = readGPU("== tests\nno rules\n")
	assert.ErrorContains(t, err, "no lines of rules")
	_, err = readGPU("driver: CUDA 12.4\ndevice 0: cudasim device 0\nok one\n")
	assert.ErrorContains(t, err, "of the simulator")
}

func TestColumnOfTheGPU(t *testing.T) {
	list := []rule{
		{"events", "one", "manual", "One.", ""}, {"events", "two", "seen", "Two | three.", ""},
		{"streams", "three", "reading", "Three.", ""}, {"streams", "four", "reading", "Four.", "crash | hang"},
	}
	simulator := results{lines: map[string]result{"one": {word: "ok"}, "two": {word: "ok"}, "three": {word: "ok"}, "four": {word: "ok"}}}
	empty := page(list, simulator, results{})
	assert.Contains(t, empty, "| `one` | manual | One. | ok | not run yet |\n")
	assert.Contains(t, empty, "no GPU has run the rules yet")
	assert.Empty(t, readPage(empty).lines)
	gpu := readOutput("date: x\n== tests\nok other\n== rules\ndriver: CUDA 13.0\ndevice 0: H100\nok one\n" +
		"FAIL two: seen on drivers: Two | three. here: a | b here: c\nskip three: needs two devices\n== speed\nok four\n")
	filled := page(list, simulator, gpu)
	assert.Contains(t, filled, "The GPU follows 1 and differs in 1; it had differed in 0 that were rewritten since. 0 are not run yet.\n\nThe GPU column is from this driver: driver: CUDA 13.0; device 0: H100.\n")
	assert.Contains(t, filled, "| `one` | manual | One. | ok | ok |\n")
	assert.Contains(t, filled, "| `two` | seen | Two &#124; three. | ok | **differs**: a &#124; b here: c |\n")
	assert.Contains(t, filled, "| `three` | reading | Three. | ok | skipped: needs two devices |\n")
	assert.Contains(t, filled, "| `four` | reading | Four. | ok | the simulator is stricter than drivers, which crash &#124; hang |\n")
	assert.Equal(t, gpu, readPage(filled))
	assert.Equal(t, filled, page(list, simulator, readPage(filled)))
}

// What a GPU did with a rule that was rewritten since says nothing of the rule as it is now.
func TestColumnOfTheGPUIsOfTheRuleThatRan(t *testing.T) {
	list := []rule{{"events", "one", "manual", "One.", ""}, {"events", "two", "manual", "Two.", ""}}
	gpu := readOutput("driver: CUDA 13.0\nFAIL one: simulator, where the manual is silent: None. here: a\n" +
		"FAIL two: manual: Three. here: b\n")
	list[1].driver = "pass"
	first := page(list, results{}, gpu)
	assert.Contains(t, first, "The GPU follows 0 and differs in 0; it had differed in 1 that were rewritten since. 0 are not run yet.")
	assert.Contains(t, first, "| `one` | manual | One. | not run yet | differed before the rule was rewritten: a |\n")
	assert.Equal(t, first, page(list, results{}, readPage(first)))
	list[0].text = "None."
	assert.Contains(t, page(list, results{}, gpu), "| `one` | manual | None. | not run yet | **differs**: a |\n")
	assert.Contains(t, page(list, results{}, readPage(page(list, results{}, gpu))), "The GPU follows 0 and differs in 1;")
}
