package main

import (
	"bufio"
	"fmt"
	"io"
	"runtime"
	"strings"
)

// writeText writes every turn as a line of Go's benchmark format, which benchstat compares: ours,
// and the peers' as a measure of the machine, which the code that is compared does not change.
func writeText(w io.Writer, results []Result) error {
	out := bufio.NewWriter(w)
	fmt.Fprintf(out, "goos: %s\ngoarch: %s\npkg: github.com/arrowdevice/arrowdevice/bench\ncpu: %s\n", runtime.GOOS, runtime.GOARCH, thisMachine().CPU)
	written := map[string]bool{}
	for _, r := range results {
		if name := textName(r, "ours"); !written[name] {
			written[name] = true
			r.turns.write(out, name, fmt.Sprintf(" %.1f allocs/op", r.Allocs))
		}
		if r.Peer != "" {
			r.peerTurns.write(out, textName(r, r.Peer), "")
		}
	}
	return out.Flush()
}

// textName is the name of a side, as a benchmark.
func textName(r Result, side string) string {
	name := fmt.Sprintf("BenchmarkBatch/operation=%s/shape=%s/columns=%d/side=%s", r.Operation, r.Shape, r.Columns, side)
	return strings.ReplaceAll(name, " ", "_")
}

func (t turns) write(w io.Writer, name, more string) {
	for i := range t.elapsed {
		fmt.Fprintf(w, "%s 1 %.1f ns/op %.1f cpu-ns/op%s\n", name, t.elapsed[i], t.cpu[i], more)
	}
}
