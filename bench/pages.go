package main

import (
	"bytes"
	"cmp"
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
	"readme":     readmeTable,
	"cdata":      dropInTable,
	"streams":    endToEndTable,
	"live":       liveTable,
	"calls":      callsTable,
	"threads":    threadsTable,
	"flight":     flightTable,
	"machine":    machineText,
}

// pagesWithTables are the files that have tables, by their paths from docs.
var pagesWithTables = []string{"performance.md", "flight.md", "migration.md", "python.md", "../README.md"}

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

// comparedPeers are the columns of the table, by their heads: the floor of an operation is a program in C or in Go.
var comparedPeers = []struct {
	head  string
	peers []string
}{{"cdata", []string{"cdata"}}, {arrowCPP, []string{arrowCPP}}, {nanoarrow, []string{nanoarrow}}, {arrowRS, []string{arrowRS}}, {"floor", []string{cFloor, goFloor}}}

// ratios are the cells of a row: the ratio to each peer.
func (r report) ratios(operation, shape string, columns int) (cells []string, found bool) {
	for _, compared := range comparedPeers {
		cell := ""
		for _, row := range r.Results {
			if row.Operation == operation && row.Shape == shape && row.Columns == columns && slices.Contains(compared.peers, row.Peer) {
				cell, found = significant(row.ratio()), true
			}
		}
		cells = append(cells, cell)
	}
	return cells, found
}

// inTables are the operations of the table, in their order, and what is measured.
var inTables = [][2]string{
	{exportToC, "a batch that was wrapped before: its memory is pinned already. Each export is one call into C, whose consumer releases it"},
	{exportToThread, "the same by a consumer that has a queue, and a thread which releases"},
	{wrapToC, "begins with an arrow.RecordBatch; memory of the Go heap is pinned. cdata pins nothing, which breaks cgo's rules ([upstream.md](upstream.md), 15)"},
	{wrapToThread, "the same by a consumer that has a queue, and a thread which releases"},
	{streamToC, "a batch through an exported `ArrowDeviceArrayStream`, which a consumer in C reads to its end"},
	{streamToThread, "the same, whose arrays are released on another thread"},
	{wrapStreamToC, "from an arrow-go reader"},
	{importRelease, "ends with a `RecordBatch` of this library; cdata's ends with an arrow.RecordBatch"},
	{importView, "ends with an arrow.RecordBatch, of which every column is read"},
	{importColumn, "the same, of which one column is read"},
	{importValues, "the sum of one column's 1,000 values, read in place (`ColumnView`, `Values`); cdata makes arrays of all columns"},
	{validation, "the contents of 1,000 rows of each column; nanoarrow's does not check UTF-8"},
	{schemaFirst, "a schema that was not seen before, exported and imported: both ends are Go"},
	{schemaAgain, "the same schema again: both ends are Go"},
	{streamInGo, "a batch through an exported and an imported `ArrowDeviceArrayStream`: both ends are Go"},
	{asyncBatches, "a batch through an `ArrowAsyncDeviceStreamHandler`, with a queue of one: both ends are Go. While nothing is sent, cdata's producer keeps one core busy, and ours sleeps"},
}

// operationsTable has a row for each operation on int64 columns: the ratios for 1 column, and for 100.
func operationsTable(r report) string {
	var rows [][]string
	for _, operation := range inTables {
		one, found := r.ratios(operation[0], "int64", 1)
		hundred, more := r.ratios(operation[0], "int64", 100)
		if !found && !more {
			continue
		}
		row := []string{"`" + operation[0] + "`"}
		for i := range one {
			row = append(row, fewAndMany(one[i], hundred[i]))
		}
		rows = append(rows, append(row, operation[1]))
	}
	head := []string{"operation"}
	for _, compared := range comparedPeers {
		head = append(head, compared.head)
	}
	return table(append(head, "what is measured"), rows)
}

// fewAndMany is a cell with the values for few columns and for many.
func fewAndMany(few, many string) string {
	if few == "" && many == "" {
		return ""
	}
	return cmp.Or(few, "-") + " / " + cmp.Or(many, "-")
}

// besidePeer is a column of a table: batches of a number of columns, beside a library.
type besidePeer struct {
	head, shape, peer string
	columns           int
}

// beside is a column of batches of int64 columns, beside arrow-go's package.
func beside(head string, columns int) besidePeer {
	return besidePeer{head, "int64", "cdata", columns}
}

// readmeTable has the ratios of processor time of the operations that have a consumer in C.
func readmeTable(r report) string {
	operations := []string{dropInExport, dropInStream, wrapToC, streamToC}
	return cpuRatios(r, operations, ofPackage, []besidePeer{
		beside("1 column", 1), beside("10 columns", 10), beside("100 columns", 100), {"100, on the Go heap", onGoHeap, "cdata", 100},
	})
}

// ofPackage is an operation with the name of our package that has it.
func ofPackage(operation string) string {
	if name, found := strings.CutPrefix(operation, "cdata: "); found {
		return "`cdata`: " + name
	}
	return "`cdevice`: " + operation
}

// dropInTable has the ratios of processor time for each number of columns, and for libraries in other languages.
func dropInTable(r report) string {
	short := func(operation string) string { return strings.TrimPrefix(operation, "cdata: ") }
	return cpuRatios(r, inDropIn, short, []besidePeer{
		beside("1 column", 1), beside("10 columns", 10), beside("100 columns", 100), beside("1,000 columns", 1000),
		{"100, on the Go heap", onGoHeap, "cdata", 100}, {"100 beside " + arrowCPP, "int64", arrowCPP, 100}, {"100 beside " + arrowRS, "int64", arrowRS, 100},
	})
}

// cpuRatios is a table of the ratios of processor time: a row for each operation, under a label.
func cpuRatios(r report, operations []string, label func(operation string) string, columns []besidePeer) string {
	head := []string{"operation"}
	for _, c := range columns {
		head = append(head, c.head)
	}
	var rows [][]string
	for _, operation := range operations {
		if cells, found := r.cpuRatiosOf(operation, columns); found {
			rows = append(rows, append([]string{label(operation)}, cells...))
		}
	}
	return table(head, rows)
}

// cpuRatiosOf are the cells of a row.
func (r report) cpuRatiosOf(operation string, columns []besidePeer) (cells []string, found bool) {
	for _, c := range columns {
		cell := ""
		if row, ok := (promise{operation: operation, shape: c.shape, peer: c.peer, columns: c.columns}).find(r.Results); ok {
			cell, found = significant(row.CPURatio), true
		}
		cells = append(cells, cell)
	}
	return cells, found
}

// liveTable has a row for each side: what its live exports take of few columns, and of many.
func liveTable(r report) string {
	var sides []string
	cells := map[string][][3]string{}
	for _, l := range r.Live {
		if cells[l.Side] == nil {
			sides = append(sides, l.Side)
		}
		cells[l.Side] = append(cells[l.Side], [3]string{fmt.Sprintf("%.0f", l.CBytes), fmt.Sprintf("%.0f", l.GoBytes), nanoseconds(l.GCMS * 1e6)})
	}
	var rows [][]string
	for _, side := range sides {
		row := []string{side}
		for i := range 3 {
			var values []string
			for _, c := range cells[side] {
				values = append(values, c[i])
			}
			row = append(row, strings.Join(values, " / "))
		}
		rows = append(rows, row)
	}
	return table([]string{"side", "bytes in C, each", "bytes on the Go heap, each", "a garbage collection"}, rows)
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
