package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The results in the repository have one record a line, as write makes them.
func TestResultsHaveOneRecordALine(t *testing.T) {
	r, err := readReport(filepath.Join("results", "latest.json"))
	require.NoError(t, err)
	again := filepath.Join(t.TempDir(), "again.json")
	require.NoError(t, r.write(again))
	text, err := os.ReadFile(filepath.Join("results", "latest.json"))
	require.NoError(t, err)
	rewritten, err := os.ReadFile(again)
	require.NoError(t, err)
	assert.Equal(t, strings.Split(string(text), "\n"), strings.Split(string(rewritten), "\n"))
	records := len(r.Results) + len(r.Live)
	assert.Less(t, strings.Count(string(text), "\n"), records+10)
}
