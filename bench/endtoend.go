package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
)

const endToEndName = "end to end"

// Where bench/peers/build.sh and integration/venv.sh put them.
const (
	endToEndLibrary = "build/bench/libendtoend.so"
	python          = "integration/.venv/bin/python"
)

// measureEndToEnd measures streams into Python's libraries, in a Python process.
func measureEndToEnd(w io.Writer, rounds int) (rows []Result) {
	for _, needed := range []string{endToEndLibrary, python} {
		if _, err := os.Stat(needed); err != nil {
			fmt.Fprintf(w, "without streams from end to end, for which bench/peers/build.sh builds the library: %v\n", err)
			return nil
		}
	}
	cmd := exec.Command(python, "bench/endtoend/measure.py", endToEndLibrary, strconv.Itoa(rounds))
	cmd.Stderr = os.Stderr
	check(json.Unmarshal(must(cmd.Output()), &rows))
	return rows
}
