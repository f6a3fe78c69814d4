package main

import (
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Each row of Flight that the table and the promises name is one that the program measures, and it measures no other.
func TestFlightIsMeasured(t *testing.T) {
	t.Chdir("..")
	out, err := exec.Command("go", "run", "./bench/flight", "-list").Output()
	require.NoError(t, err)
	var named []string
	for _, p := range flightPromises() {
		named = append(named, p.operation+", "+p.shape)
	}
	assert.ElementsMatch(t, named, strings.Split(strings.TrimSpace(string(out)), "\n"))

	first := flightPromises()[0]
	rows := measureFlight(io.Discard, meter{}, first)
	found, ok := first.find(rows)
	require.True(t, ok, "%v", rows)
	assert.Positive(t, found.Ratio)
	for _, row := range rows {
		assert.Equal(t, [2]string{first.operation, first.shape}, [2]string{row.Operation, row.Shape})
	}
}
