package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// tables are those of the pages, by the names in their markers.
var tables = map[string]func(report) string{
	"operations": operationsTable,
	"cdata":      dropInTable,
	"streams":    endToEndTable,
	"live":       liveTable,
	"calls":      callsTable,
	"threads":    threadsTable,
	"flight":     flightTable,
	"machine":    machineText,
}

// pagesWithTables are the files of docs that have tables.
var pagesWithTables = []string{"performance.md", "flight.md", "migration.md", "python.md"}

// pages returns the files below a folder, docs, that come from the results: what each must hold, by its path.
func pages(dir string, r report) (map[string][]byte, error) {
	all := map[string][]byte{}
	for name, figure := range figures {
		all[filepath.Join("performance", name+".svg")] = []byte(figure(r).SVG())
	}
	for _, name := range pagesWithTables {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		all[name] = fillIn(text, r)
	}
	return all, nil
}

var marked = regexp.MustCompile(`(?s)(<!-- bench: (\w+) -->\n).*?(<!-- end of bench -->\n)`)

// fillIn replaces what is between the markers of a page.
func fillIn(page []byte, r report) []byte {
	return marked.ReplaceAllFunc(page, func(old []byte) []byte {
		parts := marked.FindSubmatch(old)
		table, found := tables[string(parts[2])]
		if !found {
			return old
		}
		return slices.Concat(parts[1], []byte(table(r)), parts[3])
	})
}

// writePages writes what differs.
func writePages(dir, results string) error {
	r, err := readReport(results)
	if err != nil {
		return err
	}
	all, err := pages(dir, r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "performance"), 0o755); err != nil {
		return err
	}
	for name, content := range all {
		path := filepath.Join(dir, name)
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) {
			continue
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// table is a Markdown table.
func table(head []string, rows [][]string) string {
	var out strings.Builder
	line := func(cells []string) { fmt.Fprintf(&out, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	fmt.Fprintf(&out, "|%s\n", strings.Repeat("---|", len(head)))
	for _, row := range rows {
		line(row)
	}
	return out.String()
}

var comparedPeers = []string{"cdata", arrowCPP, nanoarrow, arrowRS, cFloor}

// ratios are the cells of a row: the ratio to each peer.
func (r report) ratios(operation, shape string, columns int) (cells []string, found bool) {
	for _, peer := range comparedPeers {
		cell := ""
		for _, row := range r.Results {
			if row.Operation == operation && row.Shape == shape && row.Columns == columns && row.Peer == peer {
				cell, found = significant(row.Ratio), true
			}
		}
		cells = append(cells, cell)
	}
	return cells, found
}

// inTables are the operations of the tables, in their order.
var inTables = []string{
	exportRelease, wrapExportRelease, importRelease, importView, importColumn, importValues, plainBothWays, validation,
	schemaFirst, schemaAgain, streamName, wrapStream, wrapStreamView, plainStreams, asyncBatches,
}

// operationsTable has a row for each operation on int64 columns.
func operationsTable(r report) string {
	var rows [][]string
	for _, operation := range inTables {
		for _, columns := range []int{1, 100} {
			if cells, found := r.ratios(operation, "int64", columns); found {
				rows = append(rows, append([]string{operation, fmt.Sprint(columns)}, cells...))
			}
		}
	}
	return table(append([]string{"operation", "columns"}, comparedPeers...), rows)
}

// dropInTable has the ratios of processor time for each number of columns, and for libraries in other languages.
func dropInTable(r report) string {
	columns := []struct {
		head, shape, peer string
		columns           int
	}{
		{"1 column", "int64", "cdata", 1}, {"10 columns", "int64", "cdata", 10}, {"100 columns", "int64", "cdata", 100}, {"1,000 columns", "int64", "cdata", 1000},
		{"100, on the Go heap", onGoHeap, "cdata", 100}, {"100 beside " + arrowCPP, "int64", arrowCPP, 100}, {"100 beside " + arrowRS, "int64", arrowRS, 100},
	}
	head := []string{"operation"}
	for _, c := range columns {
		head = append(head, c.head)
	}
	var rows [][]string
	for _, operation := range inDropIn {
		row := []string{strings.TrimPrefix(operation, "cdata: ")}
		for _, c := range columns {
			cell := ""
			if found, ok := (promise{operation: operation, shape: c.shape, peer: c.peer, columns: c.columns}).find(r.Results); ok {
				cell = significant(found.CPURatio)
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return table(head, rows)
}

func liveTable(r report) string {
	var rows [][]string
	for _, l := range r.Live {
		rows = append(rows, []string{
			l.Side, fmt.Sprint(l.Columns), fmt.Sprint(l.Exports), fmt.Sprintf("%.0f", l.CBytes), fmt.Sprintf("%.0f", l.GoBytes), nanoseconds(l.GCMS * 1e6),
		})
	}
	return table([]string{"side", "columns", "live exports", "bytes in C, each", "on the Go heap, each", "garbage collection"}, rows)
}

func endToEndTable(r report) string {
	var rows [][]string
	for _, row := range r.Results {
		if strings.HasPrefix(row.Operation, "stream into ") {
			rows = append(rows, []string{
				row.Operation, fmt.Sprintf("%d x %s", row.Columns, row.Shape),
				nanoseconds(row.NS), nanoseconds(row.PeerNS), significant(row.Ratio),
			})
		}
	}
	return table([]string{"operation", "batches", "from Go, each", "from PyArrow, each", "ratio"}, rows)
}

func machineText(r report) string {
	var peers []string
	for name, version := range r.Machine.Peers {
		peers = append(peers, name+" "+version)
	}
	slices.Sort(peers)
	with := r.Machine.Go
	if r.Machine.Python != "" {
		with += " and Python " + r.Machine.Python
	}
	return fmt.Sprintf("Measured on %d cores (%s), with %s, beside %s.\n", r.Machine.Cores, r.Machine.CPU, with, strings.Join(peers, ", "))
}
