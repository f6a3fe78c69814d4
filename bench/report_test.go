package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The results in the repository are as write makes them: an operation a line.
func TestResultsAreAsWritten(t *testing.T) {
	r, err := readReport(filepath.Join("results", "latest.json"))
	require.NoError(t, err)
	again := filepath.Join(t.TempDir(), "again.json")
	require.NoError(t, r.write(again))
	text, err := os.ReadFile(filepath.Join("results", "latest.json"))
	require.NoError(t, err)
	rewritten, err := os.ReadFile(again)
	require.NoError(t, err)
	assert.Equal(t, strings.Split(string(text), "\n"), strings.Split(string(rewritten), "\n"))
	operations := len(slices.CompactFunc(r.Results, Result.isBeside))
	assert.Equal(t, operations+len(r.Live)+3, strings.Count(string(text), "\n"))
}
