package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var benchmarkLine = regexp.MustCompile(`^Benchmark[A-Z]\S+ 1 [0-9.]+ ns/op [0-9.]+ cpu-ns/op( [0-9.]+ allocs/op)?$`)

// What benchstat is given has a line for each turn of each side, ours once.
func TestText(t *testing.T) {
	m := meter{round: time.Microsecond, rounds: 2}
	f := filter{operation: exactly(exportToC), shape: exactly("int64"), columns: []int{1}}
	var out bytes.Buffer
	require.NoError(t, writeText(&out, run(m, f)))
	var lines []string
	for line := range strings.Lines(out.String()) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "Benchmark") {
			assert.Regexp(t, benchmarkLine, line)
			lines = append(lines, line)
		}
	}
	assert.Len(t, lines, 3*m.rounds, "ours, cdata and the C floor")
	assert.Contains(t, lines[0], "operation=export,_released_in_C/shape=int64/columns=1/side=ours")
	assert.Contains(t, lines[0], "allocs/op")
}
