package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// callsName selects the measurements of calls from Python, and begins the names of their operations.
const callsName = "Python"

// Where bench/python/build.sh puts the extensions.
const callsFolder = "build/bench/python"

// The sides of calls, as measure.py names them.
const (
	cExtension    = "C extension"
	pyO3          = "PyO3"
	nanobind      = "nanobind"
	ctypesCgo     = "ctypes + cgo"
	pyArrowExport = "PyArrow's export"
)

var callPeers = []string{cExtension, pyO3, nanobind, ctypesCgo, pyArrowExport}

// callPeersThere are those that were measured.
var callPeersThere []string

const (
	callEmpty     = callsName + ": empty()"
	callAdd       = callsName + ": add(1, 2)"
	callOwn       = callsName + ": rows(own batch)"
	callBatch     = callsName + ": rows(PyArrow's batch)"
	callStream    = callsName + ": rows(stream of one batch)"
	callGenerator = callsName + ": rows(generator of one batch)"
	callImport    = callsName + ": import"
)

// inCalls are the rows of the table, each with the nanoseconds that it is to take at most; 0 is no limit.
var inCalls = []struct {
	operation string
	limit     float64
}{{callEmpty, 2000}, {callAdd, 2000}, {callOwn, 4000}, {callBatch, 4000}, {callStream, 15_000}, {callGenerator, 0}, {callImport, 0}}

// isCall reports whether an operation is measured in a Python process.
func isCall(operation string) bool { return strings.HasPrefix(operation, callsName+": ") }

// callsReport is what measure.py prints.
type callsReport struct {
	Python string            `json:"python"`
	Peers  map[string]string `json:"peers"` // versions
	Rows   []Result          `json:"rows"`
}

// measureCalls measures calls from Python: all, or those of one operation.
func measureCalls(w io.Writer, m meter, only ...string) (calls callsReport) {
	folder := must(filepath.Abs(callsFolder))
	if _, err := os.Stat(filepath.Join(folder, "libcalls.so")); err != nil {
		fmt.Fprintf(w, "without calls from Python, for which bench/python/build.sh builds the library: %v\n", err)
		return calls
	}
	python := must(exec.Command("ci/venv", "bench/python/requirements.txt").Output())
	args := append([]string{"bench/python/measure.py", folder, strconv.Itoa(m.rounds), fmt.Sprint(m.round.Seconds() * 1000)}, only...)
	cmd := exec.Command(strings.TrimSpace(string(python)), args...)
	cmd.Stderr = w
	check(json.Unmarshal(must(cmd.Output()), &calls))
	return calls
}

// addCalls adds what was measured.
func (r *report) addCalls(calls callsReport) {
	r.Results = append(r.Results, calls.Rows...)
	r.Machine.Python = calls.Python
	maps.Copy(r.Machine.Peers, calls.Peers)
	for _, row := range calls.Rows {
		if !slices.Contains(callPeersThere, row.Peer) {
			callPeersThere = append(callPeersThere, row.Peer)
		}
	}
}

// callsTable has the time of each call on all sides.
func callsTable(r report) string {
	var rows [][]string
	for _, of := range inCalls {
		row := []string{strings.TrimPrefix(of.operation, callsName+": "), "", ""}
		i := slices.IndexFunc(r.Results, func(row Result) bool { return row.Operation == of.operation })
		if i >= 0 {
			row[1] = nanoseconds(r.Results[i].NS)
		}
		if of.limit > 0 {
			row[2] = nanoseconds(of.limit)
		}
		for _, peer := range callPeers {
			cell := ""
			if found, ok := r.call(of.operation, peer); ok {
				cell = nanoseconds(found.PeerNS)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return table(append([]string{"call", ourName, "limit"}, callPeers...), rows)
}

// call finds the row of a call beside a peer.
func (r report) call(operation, peer string) (Result, bool) {
	i := slices.IndexFunc(r.Results, func(row Result) bool { return row.Operation == operation && row.Peer == peer })
	if i < 0 {
		return Result{}, false
	}
	return r.Results[i], true
}

// onThreads are the calls that several threads do.
var onThreads = []string{"empty()", "20 µs without the GIL"}

// oneThreadOnly is the peer that does on one thread what ours does on several.
const oneThreadOnly = "1 thread"

// threadsTable has how many times as many calls threads do as one thread does.
func threadsTable(r report) string {
	var rows [][]string
	for _, name := range onThreads {
		for _, n := range []int{2, 4, 8} {
			operation := fmt.Sprintf("%s: %s, %d threads", callsName, name, n)
			row := []string{name, fmt.Sprint(n), "", ""}
			if one, ok := r.call(operation, oneThreadOnly); ok {
				row[2] = significant(one.Ratio)
			}
			all, ok := r.call(operation, pyO3)
			one, also := r.call(operation, pyO3+oneThread)
			if ok && also {
				row[3] = significant(one.PeerNS / all.PeerNS)
			}
			rows = append(rows, row)
		}
	}
	return table([]string{"call", "threads", ourName, pyO3}, rows)
}
