package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

const endToEndName = "end to end"

// Where bench/peers/build.sh puts it.
const endToEndLibrary = "build/bench/libendtoend.so"

// measureEndToEnd measures streams into Python's libraries, in a Python process.
func measureEndToEnd(w io.Writer, rounds int) (rows []Result) {
	if _, err := os.Stat(endToEndLibrary); err != nil {
		fmt.Fprintf(w, "without streams from end to end, for which bench/peers/build.sh builds the library: %v\n", err)
		return nil
	}
	python := must(exec.Command("ci/venv", "integration/python/requirements.txt").Output())
	cmd := exec.Command(strings.TrimSpace(string(python)), "bench/endtoend/measure.py", endToEndLibrary, strconv.Itoa(rounds))
	cmd.Stderr = os.Stderr
	check(json.Unmarshal(must(cmd.Output()), &rows))
	return rows
}
