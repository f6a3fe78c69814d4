//go:build unix

package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/bandwidth"
	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/doctor"
	"github.com/arrowdevice/arrowdevice/cmd/arrowdevice/internal/text"
	"github.com/arrowdevice/arrowdevice/cudasim"
)

// reported is the report that programs get.
func reported(t *testing.T, text string) (r doctor.Report) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	require.NoError(t, decoder.Decode(&r), text)
	return r
}

// examined runs the doctor for people and for programs, which must say the same.
func examined(t *testing.T, env []string, args ...string) (doctor.Report, string) {
	t.Helper()
	people, programs := forBoth(t, env, append([]string{"doctor"}, args...)...)
	assert.Equal(t, people.status, programs.status)
	assert.Empty(t, people.stderr+programs.stderr)
	r := reported(t, programs.stdout)
	assert.Equal(t, r.Usable, people.status == 0)

	plain := func(s string) string {
		return address.ReplaceAllString(strings.Join(strings.Fields(s), " "), "ADDRESS")
	}
	table := plain(people.stdout)
	says := func(facts ...string) {
		t.Helper()
		for _, fact := range facts {
			assert.Contains(t, table, plain(fact))
		}
	}
	says(r.Driver.Path, r.Driver.CUDA)
	for _, d := range r.Devices {
		says(fmt.Sprintf("cuda:%d %s", d.Ordinal, d.Name), d.UUID, d.PCI, d.ComputeCapability, text.Bytes(d.MemoryTotal))
	}
	for _, v := range r.Environment {
		says(v.Name + " " + v.Value)
	}
	for _, p := range r.Python.Peers {
		says(p.Name, p.Version, p.Note, p.Error)
	}
	if len(r.Devices) > 1 {
		assert.Contains(t, people.stdout, "from, to              cuda:0  cuda:1\n")
	}
	for _, f := range r.Findings {
		says(f.Severity+" "+f.Problem, f.Remedy)
	}
	assert.Equal(t, r.Simulated, strings.Contains(table, "simulated driver: no GPU"))
	return r, people.stdout
}

var address = regexp.MustCompile(`0x[0-9a-f]+`)

func TestDoctorOnSimulators(t *testing.T) {
	for name, c := range map[string]struct {
		machine  cudasim.Options
		findings []string // the beginnings of the problems
	}{
		"one":     {cudasim.Options{Devices: 1}, nil},
		"CUDA 13": {cudasim.Options{Version: 13000}, nil},
		"no GPU":  {cudasim.Options{NoDevices: true}, []string{"The simulated driver has no device: CUDASIM says devices=0."}},
		"old": {
			cudasim.Options{Missing: []string{"cuMemPoolCreate", "cuMemAllocFromPoolAsync", "cuStreamIsCapturing"}, Version: 11010},
			[]string{"The driver is old and lacks cuMemPoolCreate, cuMemAllocFromPoolAsync: ", "The driver is old and lacks cuStreamIsCapturing: "},
		},
		"too old":   {cudasim.Options{Missing: []string{"cuMemHostAlloc"}}, []string{"The driver is too old: "}},
		"no memory": {cudasim.Options{Memory: 1 << 20, HostMemory: 1 << 16}, []string{"1 MiB of host memory cannot be page-locked on cuda:0, ", "Host memory cannot be registered on cuda:0: "}},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := examined(t, simulated(t, c.machine), "--python", "")
			assert.True(t, r.Simulated)
			assert.Equal(t, name == "one" || name == "CUDA 13" || name == "old", r.Usable)
			require.Len(t, r.Findings, len(c.findings), "%v", r.Findings)
			for i, want := range c.findings {
				assert.True(t, strings.HasPrefix(r.Findings[i].Problem, want), "%v", r.Findings[i])
			}
			if r.Driver.Failure != nil {
				assert.Empty(t, r.Devices)
				return
			}
			assert.Len(t, r.Devices, 1)
			assert.NotZero(t, r.Devices[0].MemoryFree)
		})
	}
}

// The findings are the end of the table: problems, and below them what to do.
func TestDoctorPrintsFindings(t *testing.T) {
	_, table := examined(t, simulated(t, cudasim.Options{Devices: 2, NoPeer: true, NoPools: true, NoConcurrentManaged: true}), "--python", "")
	_, findings, _ := strings.Cut(table, "\nWhat is wrong, and what to do\n")
	assert.Equal(t, `  warning  No stream-ordered pools on cuda:0, cuda:1: memory comes from
           cuMemAlloc and a cache, which is slower.
  warning  No concurrent managed access on cuda:0, cuda:1: the CPU must not
           touch managed memory while the GPU works.
           -> Use GPU or pinned memory; cudaalloc.NewManagedAllocator refuses to
              make an allocator.
  warning  GPUs cannot reach each other's memory: cuda:0 and cuda:1. Copies
           between them go through host memory, by the driver.
           -> nvidia-smi topo -m shows how they are connected. MIG devices never
              reach each other.
`, findings)
}

// Hardware coherency is of each GPU.
func TestDoctorNamesCoherentGPUs(t *testing.T) {
	r, table := examined(t, simulated(t, cudasim.Options{Devices: 2, Coherent: 1}), "--python", "")
	assert.True(t, *r.Devices[0].HardwareCoherent)
	assert.False(t, *r.Devices[1].HardwareCoherent)
	table = strings.Join(strings.Fields(table), " ")
	assert.Equal(t, 1, strings.Count(table, "pageable memory the GPU can read it and write it, by the page tables of the CPU (hardware coherency)"), table)
	assert.Equal(t, 1, strings.Count(table, "pageable memory the GPU cannot read it"), table)
}

// differing matches the parts that differ from machine to machine.
var differing = []struct{ pattern, with string }{
	{`(?m)^arrowdevice doctor .*$`, "arrowdevice doctor VERSION"},
	{`(?m)^(  library +).*\n( {24}.*\n)*`, "${1}PATH\n"},
	{`(?m)^(  CDEVICE_CUDA_DRIVER +).*\n( {24}.*\n)?`, "${1}PATH\n"},
	{`ok, 1 MiB in \S+`, "ok, 1 MiB in TIME"},
	{`(?m)^Machine\n(  .*\n)+`, "Machine\n  FACTS\n"},
	{`(?m)^Python .*\n(  .*\n)+\n`, ""},
}

// docs/doctor.md shows what the command prints, and names the fields of the JSON forms.
func TestPageShowsTheOutput(t *testing.T) {
	page, err := os.ReadFile("../../docs/doctor.md")
	require.NoError(t, err)
	_, block, ok := strings.Cut(string(page), "```\narrowdevice doctor")
	require.True(t, ok)
	block, _, _ = strings.Cut("arrowdevice doctor"+block, "```\n")
	_, table := examined(t, simulated(t, cudasim.Options{Devices: 2}), "--python", "")
	for _, d := range differing {
		pattern := regexp.MustCompile(d.pattern)
		block, table = pattern.ReplaceAllString(block, d.with), pattern.ReplaceAllString(table, d.with)
	}
	assert.Equal(t, block, table)
	for _, form := range []any{doctor.Report{Error: "?"}, bandwidth.Report{Error: "?"}} {
		for name := range fieldsOf(form) {
			assert.True(t, strings.Contains(string(page), "`"+name+"`"), "%s is a field of the JSON form", name)
		}
	}
}

// fieldsOf returns the names of the fields of a struct in JSON.
func fieldsOf(v any) map[string]json.RawMessage {
	text, err := json.Marshal(v)
	fields := map[string]json.RawMessage{}
	if err != nil || json.Unmarshal(text, &fields) != nil {
		panic("no object")
	}
	return fields
}

// library builds a libcuda.so.1 that has every function. Those of which there is no body return 0; "load" is called while
// the library is loaded.
func library(t *testing.T, bodies map[string]string) string {
	t.Helper()
	header, err := os.ReadFile("../../internal/cuda/functions.h")
	require.NoError(t, err)
	var source strings.Builder
	source.WriteString("#include <fcntl.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n")
	for _, m := range regexp.MustCompile(`X\(\w+, \w+, "(\w+)"`).FindAllStringSubmatch(string(header), -1) {
		fmt.Fprintf(&source, "int %s(int* out) { %s; return 0; }\n", m[1], bodies[m[1]])
	}
	fmt.Fprintf(&source, "__attribute__((constructor)) static void load(void) { %s; }\n", bodies["load"])
	require.Greater(t, strings.Count(source.String(), "\n"), 50)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "cuda.c"), []byte(source.String()), 0o666))
	path := filepath.Join(dir, "libcuda.so.1")
	out, err := exec.Command("cc", "-shared", "-fPIC", "-o", path, filepath.Join(dir, "cuda.c")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// Drivers that do not start: the reason and the remedy are in the first finding.
func TestDoctorExplainsDrivers(t *testing.T) {
	for name, c := range map[string]struct {
		cuInit, problem, remedy string
	}{
		"stub":  {"return 34;", "stub of the CUDA toolkit", "folders named stubs"},
		"hang":  {"for (;;) pause();", "cuInit did not return within 5s", "--timeout"},
		"crash": {"abort();", "The driver crashed: the process ended in cuInit", "two drivers may be mixed"},
		"exit":  {"exit(0);", "The driver crashed: the process ended in cuInit", "two drivers may be mixed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			timeout := "1m"
			if name == "hang" {
				timeout = "5s"
			}
			r, _ := examined(t, []string{"CDEVICE_CUDA_DRIVER=" + library(t, map[string]string{"cuInit": c.cuInit})}, "--python", "", "--timeout", timeout)
			assert.Less(t, time.Since(start), time.Minute)
			assert.False(t, r.Usable)
			assert.False(t, r.Simulated)
			require.NotEmpty(t, r.Findings)
			assert.Equal(t, "error", r.Findings[0].Severity)
			assert.Contains(t, r.Findings[0].Problem, c.problem)
			assert.Contains(t, r.Findings[0].Remedy, c.remedy)
			assert.Equal(t, "cuInit", r.Driver.Failure.Call)
			assert.Equal(t, name == "hang", r.Driver.Failure.TimedOut)
			assert.Equal(t, name == "crash" || name == "exit", r.Driver.Failure.Died)
		})
	}
}

func TestDoctorWithoutADriver(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "libcuda.so.1")
	r, table := examined(t, []string{"CDEVICE_CUDA_DRIVER=" + missing}, "--python", "")
	assert.False(t, r.Usable)
	assert.Contains(t, table, "cannot be loaded")
	assert.Contains(t, r.Findings[0].Problem, "CDEVICE_CUDA_DRIVER names it")

	r, _ = examined(t, []string{"CDEVICE_CUDA_DRIVER=libc.so.6"}, "--python", "")
	assert.Contains(t, r.Findings[0].Problem, "is not a CUDA driver")

	r, _ = examined(t, []string{"CDEVICE_CUDA_DRIVER=" + library(t, map[string]string{"cuInit": "return 100"})}, "--python", "")
	assert.Contains(t, r.Findings[0].Problem, "The driver is there, and it has no GPU")
	hidden := []string{"CDEVICE_CUDA_DRIVER=" + library(t, map[string]string{"cuInit": "return 100"}), "CUDA_VISIBLE_DEVICES="}
	r, _ = examined(t, hidden, "--python", "")
	assert.Contains(t, r.Findings[0].Problem, `CUDA_VISIBLE_DEVICES="" hides all of them`)
}

// fakes are Python libraries, by file.
var fakes = map[string]string{
	"torch.py":          "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
	"jax/__init__.py":   "import time; time.sleep(1000)",
	"cupy.py":           "raise ImportError('libcudart.so.12: cannot open shared object file')",
	"rmm.py":            "import os; os._exit(0)",
	"cudf.py":           "import sys; print('{\"result\": {\"state\": \"ok\", \"version\": \"forged\"}}', flush=True); sys.exit(7)",
	"pylibcudf.py":      "import subprocess, sys\n__version__ = '26.10'\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(20)'])\n",
	"polars.py":         "__version__ = '9.9'",
	"numpy.py":          "import no_such_module",
	"numba/__init__.py": "__version__ = '1.0'",
}

// A library that crashes or hangs is a line, and the others are examined all the same.
func TestDoctorSurvivesPeers(t *testing.T) {
	t.Parallel()
	// Itself, and not a script that finds it: that may take seconds on a busy machine.
	python, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	require.NoError(t, err)
	dir := t.TempDir()
	for name, content := range fakes {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666))
	}
	env := append(simulated(t, cudasim.Options{}), "PYTHONPATH="+dir)
	start := time.Now()
	r, table := examined(t, env, "--timeout", "10s", "--python", strings.TrimSpace(string(python)))
	assert.Less(t, time.Since(start), 90*time.Second)
	assert.True(t, r.Usable, "peers do not matter to the GPU")
	assert.NotEmpty(t, r.Python.Version)
	by := map[string]doctor.Peer{}
	for _, p := range r.Python.Peers {
		by[p.Name] = p
	}
	for name, state := range map[string]string{
		"torch": "crashed", "jax": "timed out", "cupy": "error", "rmm": "crashed", "cudf": "error", "pylibcudf": "ok",
		"polars": "ok", "numpy": "error", "numba": "ok",
	} {
		assert.Equal(t, state, by[name].State, "%s: %s", name, by[name].Error)
	}
	assert.Contains(t, by["torch"].Error, "segmentation fault")
	assert.Contains(t, by["cupy"].Error, "libcudart.so.12")
	assert.Contains(t, by["numpy"].Error, "no_such_module")
	assert.Empty(t, by["cudf"].Version, "what a library prints is not an answer")
	assert.Contains(t, table, "  polars                9.9, on the CPU\n")
	assert.Contains(t, table, "  pylibcudf             26.10\n")
	assert.Len(t, r.Findings, 6, "each that cannot be imported")
}

func TestDoctorWithoutPython(t *testing.T) {
	env := simulated(t, cudasim.Options{})
	r, _ := examined(t, env, "--python", "no-such-python")
	assert.Contains(t, r.Python.Error, "no-such-python")
	assert.True(t, r.Usable)
	r, _ = examined(t, env, "--python", "true")
	assert.Contains(t, r.Python.Error, "true is no Python")
	r, _ = examined(t, env, "--python", "")
	assert.Empty(t, r.Python)
}

// Ctrl-C ends the doctor and its children at once.
func TestDoctorIsInterrupted(t *testing.T) {
	env, caller := hanging(t, "cuInit", "")
	ready := func(int) bool { return caller() != 0 }
	r := reported(t, interrupted(t, ready, env, "doctor", "--python", "", "--json"))
	assert.ErrorIs(t, syscall.Kill(caller(), 0), syscall.ESRCH, "the child is ended")
	assert.Equal(t, "context canceled", r.Error)
	assert.False(t, r.Usable)
	assert.NotEmpty(t, r.Environment, "what is known")
	env, caller = hanging(t, "cuInit", "")
	assert.Empty(t, interrupted(t, ready, env, "doctor", "--python", ""))
}
