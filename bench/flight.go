package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
)

// flightName selects the measurements of Arrow Flight, and begins the names of their operations.
const flightName = "Flight"

// The sides of Flight, as bench/flight names them.
const (
	arrowGoFlight = "arrow-go's Flight"
	pyArrowFlight = "PyArrow's Flight"
)

// isFlight reports whether bench/flight measures an operation.
func isFlight(operation string) bool { return strings.HasPrefix(operation, flightName+": ") }

// flightOperation names the operation of a method, with batches at a place, on one or 64 streams.
func flightOperation(method, place string, streams int) string {
	if streams == 1 {
		return fmt.Sprintf("%s: %s, %s, 1 stream", flightName, method, place)
	}
	return fmt.Sprintf("%s: %s, %s, %d streams", flightName, method, place, streams)
}

// The rows of the table of Flight.
var (
	flightMethods = []string{"DoGet", "DoPut"}
	flightPlaces  = []string{"host", "GPU"}
	flightShapes  = []string{"10 rows", "10,000 rows", "1,000,000 rows"}
	flightStreams = []int{1, 64}
)

// flightColumns is the number of columns of a batch.
const flightColumns = 3

// flightPromises are that no row is slower than arrow-go's. Between GPUs, batches of up to 10,000 rows are calls of the driver,
// of which both sides make the same ones.
func flightPromises() (all []promise) {
	for _, method := range flightMethods {
		for _, place := range flightPlaces {
			for _, shape := range flightShapes {
				for _, streams := range flightStreams {
					least := 1.0
					if place == "GPU" && shape != flightShapes[2] {
						least = 0.9
					}
					all = append(all, promise{flightOperation(method, place, streams), shape, arrowGoFlight, flightColumns, least, 0, 1})
				}
			}
		}
	}
	return all
}

// measureFlight measures Flight, in processes of its own: all rows, or those that a promise is about.
func measureFlight(w io.Writer, m meter, only ...promise) (rows []Result) {
	pattern := ""
	for _, p := range only {
		pattern = "^" + regexp.QuoteMeta(p.operation+", "+p.shape) + "$"
	}
	args := []string{
		"run", "./cudasim/run", "-machine", "race=0", "go", "run", "./bench/flight",
		"-json", "-only", pattern, "-rounds", strconv.Itoa(max(3, m.rounds/2)),
	}
	if python, err := exec.Command("ci/venv", "integration/python/requirements.txt").Output(); err == nil {
		args = append(args, "-python", strings.TrimSpace(string(python)))
	} else {
		fmt.Fprintf(w, "without PyArrow's Flight: %v\n", err)
	}
	cmd := exec.Command("go", args...)
	cmd.Stderr = io.Discard // what the simulated GPU says of objects that are left when a process ends
	check(json.Unmarshal(must(cmd.Output()), &rows))
	return rows
}

// flightTable has a row for each method, place and size, with the ratios to the other sides.
func flightTable(r report) string {
	head := []string{"call", "batches of"}
	for _, streams := range flightStreams {
		name := fmt.Sprintf("%d streams, each", streams)
		if streams == 1 {
			name = "1 stream, each"
		}
		head = append(head, name, "arrow-go", "PyArrow")
	}
	var rows [][]string
	for _, method := range flightMethods {
		for _, place := range flightPlaces {
			for _, shape := range flightShapes {
				row := []string{method + ", " + place, shape}
				for _, streams := range flightStreams {
					operation := flightOperation(method, place, streams)
					row = append(row, r.flightCells(operation, shape)...)
				}
				rows = append(rows, row)
			}
		}
	}
	return table(head, rows)
}

// flightCells are the time of an operation, and the ratios to the other sides.
func (r report) flightCells(operation, shape string) []string {
	cells := []string{"", "", ""}
	for i, peer := range []string{arrowGoFlight, pyArrowFlight} {
		found, ok := (promise{operation: operation, shape: shape, peer: peer, columns: flightColumns}).find(r.Results)
		if ok {
			cells[0], cells[i+1] = nanoseconds(found.NS), significant(found.Ratio)
		}
	}
	return cells
}
