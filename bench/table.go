package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// printTable prints every result, for people at a terminal.
func printTable(out io.Writer, results []Result) {
	if len(results) == 0 {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "operation\tshape\tcolumns\tns\tCPU ns\tallocs\tpeer\tpeer ns\tCPU ns\tratio\tof CPU\t")
	for _, r := range results {
		fmt.Fprintf(w, "%s\t%s\t%d\t%.0f\t%.0f\t%.1f\t%s\t%.0f\t%.0f\t%.2f\t%.2f\t\n",
			r.Operation, r.Shape, r.Columns, r.NS, r.CPU, r.Allocs, r.Peer, r.PeerNS, r.PeerCPU, r.Ratio, r.CPURatio)
	}
	w.Flush()
}

// print prints all tables.
func (r report) print(out io.Writer) {
	printTable(out, r.Results)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	for i, l := range r.Live {
		if i == 0 {
			fmt.Fprintln(w, "\nlive exports of\tcolumns\texports\tC bytes\tGo bytes\tGC ms\tGC CPU ms\tpause µs\texport ns\trelease ns\t")
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%.0f\t%.0f\t%.1f\t%.1f\t%.0f\t%.0f\t%.0f\t\n",
			l.Side, l.Columns, l.Exports, l.CBytes, l.GoBytes, l.GCMS, l.GCCPUMS, l.PauseUS, l.Export, l.Release)
	}
	w.Flush()
	if slices.ContainsFunc(r.Results, func(row Result) bool { return isCall(row.Operation) }) {
		fmt.Fprintf(out, "\n%s\n%s", callsTable(r), threadsTable(r))
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
	if ratio < 0.0095 {
		return fmt.Sprintf("%.1g", ratio)
	}
	return fmt.Sprintf("%.2f", ratio)
}

// nanoseconds is a time with two digits.
func nanoseconds(ns float64) string {
	switch {
	case ns >= 1e6:
		return significant(ns/1e6) + " ms"
	case ns >= 1e3:
		return significant(ns/1e3) + " µs"
	}
	return fmt.Sprintf("%.0f ns", ns)
}
