package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The pictures and tables of docs are those of the last run: make bench, or go run ./bench -pages docs, writes
// them.
func TestPagesComeFromTheResults(t *testing.T) {
	r, err := readReport(filepath.Join("results", "latest.json"))
	require.NoError(t, err)
	docs := filepath.Join("..", "docs")
	all, err := pages(docs, r)
	require.NoError(t, err)
	for name, want := range all {
		got, err := os.ReadFile(filepath.Join(docs, name))
		if assert.NoError(t, err) {
			assert.Equal(t, string(want), string(got), name)
			for _, ours := range append(marked.FindAll(got, -1), drawing(name, got)) {
				assert.NotContains(t, string(ours), "NaN", name)
				assert.NotContains(t, string(ours), "Inf", name)
			}
		}
	}
	drawn, err := filepath.Glob(filepath.Join(docs, "performance", "*"))
	require.NoError(t, err)
	assert.Len(t, drawn, len(figures), "no picture is left over")
}

// drawing is the file if it is a picture.
func drawing(name string, content []byte) []byte {
	if filepath.Ext(name) == ".svg" {
		return content
	}
	return nil
}

// Another result makes another picture and another table: each depends on what it shows.
func TestPagesDependOnTheResults(t *testing.T) {
	r, err := readReport(filepath.Join("results", "latest.json"))
	require.NoError(t, err)
	other := r
	other.Results = append([]Result(nil), r.Results...)
	for i := range other.Results {
		other.Results[i].Ratio *= 7
		other.Results[i].CPURatio *= 7
		other.Results[i].NS *= 3
	}
	for name, figure := range figures {
		assert.NotEqual(t, figure(r).SVG(), figure(other).SVG(), name)
	}
	other.Live, other.Machine.CPU = nil, "another"
	for name, table := range tables {
		assert.NotEqual(t, table(r), table(other), name)
	}
}

// Every table of the program is on a page, and every one on a page is the program's.
func TestTablesAreOnPages(t *testing.T) {
	found := map[string]bool{}
	for _, name := range pagesWithTables {
		text, err := os.ReadFile(filepath.Join("..", "docs", name))
		require.NoError(t, err)
		for _, parts := range marked.FindAllSubmatch(text, -1) {
			found[string(parts[2])] = true
		}
	}
	for name := range tables {
		assert.True(t, found[name], name)
	}
	assert.Len(t, found, len(tables))
}
