package main

import (
	"fmt"
	"slices"

	"github.com/arrowdevice/arrowdevice/bench/plot"
)

// figures are the pictures of docs/performance, by their names, and what each is drawn of.
var figures = map[string]func(report) plot.Figure{
	"ratios": ratiosByColumns,
	"cores":  throughputByCores,
}

const ourName = "arrowdevice"

// sides are the series of all pictures, each with its colour.
var sides = []plot.Entry{
	{Name: ourName, Colour: 0}, {Name: "cdata", Colour: 1}, {Name: arrowCPP, Colour: 2},
	{Name: nanoarrow, Colour: 3}, {Name: arrowRS, Colour: 4}, {Name: cFloor, Colour: 5},
}

// ratiosOf returns the numbers of int64 columns, each with the ratio of an operation and a peer.
func (r report) ratiosOf(operation, peer string) (points [][2]float64) {
	for _, row := range r.Results {
		if row.Operation == operation && row.Shape == "int64" && row.Peer == peer && row.Ratio > 0 {
			points = append(points, [2]float64{float64(row.Columns), row.Ratio})
		}
	}
	return points
}

func byColumns(r report) (all []float64) {
	for _, row := range r.Results {
		if row.Shape == "int64" && !slices.Contains(all, float64(row.Columns)) {
			all = append(all, float64(row.Columns))
		}
	}
	slices.Sort(all)
	return all
}

func ratiosByColumns(r report) plot.Figure {
	f := plot.Figure{
		Title:  "How many times as long the others take, by the number of columns",
		About:  "Line charts, one for each operation: the time of other libraries divided by that of arrowdevice, for batches of 1 to 10,000 int64 columns.",
		Across: 3, Legend: sides[1:],
	}
	for _, operation := range []string{exportToC, wrapToC, importRelease, importView, streamToC, schemaAgain} {
		l := plot.Lines{
			Title: operation, XLabel: "columns", YLabel: "their time / ours", Width: 276, Height: 240,
			X: byColumns(r), LogX: true, LogY: true, Even: 1,
		}
		for _, side := range sides[1:] {
			if points := r.ratiosOf(operation, side.Name); len(points) > 0 {
				l.Series = append(l.Series, plot.Series{Entry: side, Points: points})
			}
		}
		if len(l.Series) > 0 {
			f.Panels = append(f.Panels, l)
		}
	}
	return f
}

// goroutinesOf are the numbers of goroutines of the picture: those that the machine has cores for.
func (r report) goroutinesOf() []float64 {
	all := []float64{1}
	for _, n := range goroutineCounts(r.Machine.Cores) {
		all = append(all, float64(n))
	}
	return all
}

func throughputByCores(r report) plot.Figure {
	shared := plot.Entry{Name: "arrowdevice, all export one batch", Colour: 0, Dashed: true}
	least := plot.Entry{Name: goFloor, Colour: 1}
	f := plot.Figure{
		Title:  fmt.Sprintf("Exports and imports per second, as a multiple of one goroutine or thread, on %d cores", r.Machine.Cores),
		About:  "Line charts for batches of one column and of 100: how the numbers of exports and of imports per second grow with the number of goroutines.",
		Across: 2, Legend: append([]plot.Entry{sides[0], shared, least}, sides[2:]...),
	}
	for _, operation := range []string{exportToC, importRelease} {
		for _, columns := range []int{1, 100} {
			l := plot.Lines{
				Title: operation + ", " + plural(columns), XLabel: "goroutines, or threads", YLabel: "times as many as one",
				Width: 424, Height: 300, X: r.goroutinesOf(), Diagonal: true,
			}
			for _, side := range f.Legend {
				if points := r.scaling(operation, side, columns); len(points) > 1 {
					l.Series = append(l.Series, plot.Series{Entry: side, Points: points})
				}
			}
			if len(l.Series) > 0 {
				f.Panels = append(f.Panels, l)
			}
		}
	}
	return f
}

// scaling returns how many times as often a side does an operation on several goroutines as on one, measured in
// the same turns.
func (r report) scaling(of string, side plot.Entry, columns int) [][2]float64 {
	points := [][2]float64{{1, 1}}
	for _, n := range r.goroutinesOf()[1:] {
		operation := sideBySide(of, int(n))
		if side.Dashed {
			if of != exportToC {
				return nil
			}
			operation = sideBySide(exportOfOne, int(n))
		}
		one, all := 0.0, 0.0
		for _, row := range r.Results {
			if row.Operation != operation || row.Shape != "int64" || row.Columns != columns {
				continue
			}
			switch ours := side.Colour == 0; {
			case ours && row.Peer == oneGoroutine:
				one, all = row.Ratio, 1
			case !ours && row.Peer == side.Name:
				all = row.PeerNS
			case !ours && row.Peer == side.Name+oneThread:
				one = row.PeerNS
			}
		}
		if one > 0 && all > 0 {
			points = append(points, [2]float64{n, one / all})
		}
	}
	return points
}

func plural(columns int) string {
	if columns == 1 {
		return "1 column"
	}
	return fmt.Sprintf("%d columns", columns)
}
