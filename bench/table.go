package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// printTable prints every result, for people at a terminal.
func printTable(out io.Writer, results []Result) {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "operation\tshape\tcolumns\tns\tCPU ns\tallocs\tpeer\tpeer ns\tCPU ns\tratio\t")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%s\t%d\t%.0f\t%.0f\t%.1f\t%s\t%.0f\t%.0f\t%.2f\t\n",
			r.Operation, r.Shape, r.Columns, r.NS, r.CPU, r.Allocs, r.Peer, r.PeerNS, r.PeerCPU, r.Ratio)
	}
	w.Flush()
}

// printMarkdown prints the ratios as the table of docs/costs.md: a row for each batch, a
// column for each operation and its peer.
func printMarkdown(w io.Writer, results []Result) {
	var rows, columns []string
	cells := map[[2]string]string{}
	for _, r := range results {
		if r.Peer == oneGoroutine { // no peer: docs/costs.md states it in words
			continue
		}
		row, column := fmt.Sprintf("%d x %s", r.Columns, strings.ReplaceAll(r.Shape, "<", "&lt;")), r.Operation+", "+r.Peer
		if _, seen := cells[[2]string{row, ""}]; !seen {
			rows, cells[[2]string{row, ""}] = append(rows, row), row
		}
		if _, seen := cells[[2]string{"", column}]; !seen {
			columns, cells[[2]string{"", column}] = append(columns, column), column
		}
		cells[[2]string{row, column}] = significant(r.Ratio)
	}
	fmt.Fprintf(w, "| batch | %s |\n|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)+1))
	for _, row := range rows {
		fmt.Fprintf(w, "| %s |", row)
		for _, column := range columns {
			fmt.Fprintf(w, " %s |", cells[[2]string{row, column}])
		}
		fmt.Fprintln(w)
	}
}

// significant prints two digits of a ratio: more would promise too much.
func significant(ratio float64) string {
	switch {
	case ratio >= 9.95:
		return fmt.Sprintf("%.0f", ratio)
	case ratio >= 0.995:
		return fmt.Sprintf("%.1f", ratio)
	}
	return fmt.Sprintf("%.2f", ratio)
}
