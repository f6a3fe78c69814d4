package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// goTest is a test in Go and what it proves.
type goTest struct {
	pkg, name                 string
	peer, protocol, direction string
	on                        string
}

// goTests are run once more, by name, for their results: a test that is not there any more proves nothing.
var goTests = []goTest{
	{"./cdevice", "TestPlainArraysOfCdata", "arrow-go", "arrays", fromIt, onCPU},
	{"./cdevice", "TestCdataReadsPlainArrays", "arrow-go", "arrays", toIt, onCPU},
	{"./cdevice", "TestPlainStreamsOfCdata", "arrow-go", "streams", fromIt, onCPU},
	{"./cdevice", "TestCdataReadsPlainStreams", "arrow-go", "streams", toIt, onCPU},
	{"./cdevice", "TestAsyncFromCdata", "arrow-go", "asynchronous streams", fromIt, onCPU},
	{"./cdevice", "TestAsyncToCdata", "arrow-go", "asynchronous streams", toIt, onCPU},
	{"./flight", "TestGPUPlainServer", "arrow-go", "Arrow Flight", fromIt, onCPU},
	{"./flight", "TestGPUPlainClient", "arrow-go", "Arrow Flight", toIt, onCPU},

	{"./cdevice", "TestLongChildIsCutToTheBatch", "C programs", "device arrays", fromIt, onCPU},
	{"./examples", "TestPrograms/consumer", "C programs", "device arrays", toIt, onCPU},
	{"./cdevice", "TestPlainStreamOfACProgram", "C programs", "streams", fromIt, onCPU},
	{"./cdevice", "TestCProgramReadsPlainStreams", "C programs", "streams", toIt, onCPU},
	{"./cdevice", "TestAsyncStreamSchemaAndMetadata", "C programs", "asynchronous streams", fromIt, onCPU},
	{"./cdevice", "TestAsyncProducerStream", "C programs", "asynchronous streams", toIt, onCPU},
	{"./interop/dlpack", "TestImportFromC", "C programs", "DLPack", fromIt, onCPU},
	{"./interop/dlpack", "TestExportToC", "C programs", "DLPack", toIt, onCPU},

	{gorgonia, "TestMemoryBecomesABatch", "gorgonia.org/cu", cudaObjects, fromIt, onSimulator},
	{gorgonia, "TestStreamBothWays", "gorgonia.org/cu", cudaObjects, fromIt, onSimulator},
	{gorgonia, "TestStreamBothWays", "gorgonia.org/cu", cudaObjects, toIt, onSimulator},
	{gorgonia, "TestPtrBothWays", "gorgonia.org/cu", cudaObjects, toIt, onSimulator},
}

const (
	cudaObjects = "CUDA memory and events"
	gorgonia    = "./memory/cudaalloc/gorgonia" // its tests are run by its script
)

// runGo runs the tests and writes what they proved.
func runGo() error {
	byPackage := map[string][]string{}
	for _, t := range goTests {
		name, _, _ := strings.Cut(t.name, "/")
		byPackage[t.pkg] = append(byPackage[t.pkg], name)
	}
	passed := map[string]map[string]bool{}
	for pkg, tests := range byPackage {
		slices.Sort(tests)
		out, err := output(pkg, "^("+strings.Join(slices.Compact(tests), "|")+")$")
		if err != nil {
			printOutput(out)
			return fmt.Errorf("tests of %s: %w", pkg, err)
		}
		passed[pkg] = passes(out)
	}
	return write(dir, "go", proved(passed))
}

// output runs tests of a package. Their events are lines of JSON, with other lines between them.
func output(pkg, tests string) ([]byte, error) {
	name, args := "go", []string{"test", "-json", "-run", tests, pkg}
	if pkg == gorgonia {
		name, args = pkg+"/test.sh", []string{"-json", "-run", tests}
	}
	cmd := exec.Command(name, args...)
	cmd.Stderr = os.Stderr
	return cmd.Output()
}

// printOutput prints what tests printed.
func printOutput(out []byte) {
	for line := range bytes.Lines(out) {
		var event struct{ Output string }
		if json.Unmarshal(line, &event) != nil {
			event.Output = string(line)
		}
		fmt.Fprint(os.Stderr, event.Output)
	}
}

// passes returns the tests that passed and that did not fail or skip at another time: a script may run
// a package several times.
func passes(out []byte) map[string]bool {
	passed := map[string]bool{}
	for line := range bytes.Lines(out) {
		var event struct{ Action, Test string }
		if json.Unmarshal(line, &event) != nil || event.Test == "" {
			continue
		}
		switch event.Action {
		case "pass":
			if _, known := passed[event.Test]; !known {
				passed[event.Test] = true
			}
		case "fail", "skip":
			passed[event.Test] = false
		}
	}
	return passed
}

// proved returns the pairs of the tests that passed.
func proved(passed map[string]map[string]bool) []pair {
	var pairs []pair
	for _, t := range goTests {
		if passed[t.pkg][t.name] {
			name, _, _ := strings.Cut(t.name, "/")
			pairs = append(pairs, pair{t.peer, "", t.protocol, t.direction, t.on, []string{name}})
		}
	}
	return pairs
}

// moduleVersion is the version of a peer that is a Go module, as go.mod has it.
func moduleVersion(name string) (string, error) {
	i := rank(name)
	if i < 0 || names.Peers[i].Module == "" {
		return "", nil
	}
	version, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", names.Peers[i].Module).Output()
	if err != nil {
		return "", fmt.Errorf("version of %s: %w", name, err)
	}
	return strings.TrimSpace(string(version)), nil
}
