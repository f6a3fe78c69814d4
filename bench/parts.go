//go:build cgo

package main

import (
	"runtime"

	"github.com/arrowdevice/arrowdevice/bench/peers"
	"github.com/arrowdevice/arrowdevice/cdevice"
)

// Part is a share of the time of an operation. Each is the time of a variant that does less, or the
// difference of two variants, measured in turns.
type Part struct {
	Operation string  `json:"operation"`
	Columns   int     `json:"columns"`
	Name      string  `json:"name"`
	NS        float64 `json:"ns"`
}

const partsName = "parts"

const (
	partCalls    = "calls into C"
	partFill     = "allocate and fill, as in C"
	partExport   = "rest of the export, in Go"
	partFree     = "mark and free, as in C"
	partRelease  = "rest of the release, in Go"
	partProducer = "the producer's release"
	partBatch    = "import, per batch"
	partColumns  = "import, per column"
	partView     = "host view of all columns"
)

// partsOf are the columns of the batches whose operations are taken apart.
var partsOf = []int{1, 10, 100}

// measureParts takes exports and imports apart.
func measureParts(m meter) (all []Part) {
	perColumn := importSlope(m)
	for _, columns := range partsOf {
		s := newShape(int64Subject(columns))
		all = append(all, exportParts(m, s)...)
		all = append(all, importParts(m, s, perColumn)...)
		s.release()
	}
	return all
}

// structsOf is how many structs are live at once where exports and releases are measured apart: not so
// many that they are in no cache.
func structsOf(columns int) int { return max(4, 64/columns) }

// exportParts measures exports without releases, and releases without exports, of this library and
// of the C floor, and an empty call into C, of which it counts how many there are.
func exportParts(m meter, s shape) []Part {
	all := peers.Structs(structsOf(s.columns))
	defer peers.Free(all)
	e, floor := newExporter(s), s.producer()
	defer e.batch.Release()
	defer floor.Close()
	exportAll := func() {
		for i := range all {
			check(cdevice.ExportRecordBatch(e.batch, &all[i], nil))
		}
	}
	// Each side leaves the structs as it found them: half of what it does is not measured.
	exported, released := m.halves(len(all), exportAll, func() { peers.ReleaseAll(all) })
	filled, freed := m.halves(len(all), func() { check(floor.Fill(all)) }, func() { peers.ReleaseAll(all) })
	call := median(m.sideBySide([]side{{do: peers.Crossings}})[0].elapsed)

	before := runtime.NumCgoCall()
	exportAll()
	inExport := float64(runtime.NumCgoCall()-before) / float64(len(all))
	peers.ReleaseAll(all)
	calls := (inExport + 1) * call // and one that calls release
	part := func(name string, ns float64) Part {
		return Part{Operation: exportRelease, Columns: s.columns, Name: name, NS: max(0, ns)}
	}
	return []Part{
		part(partCalls, calls), part(partFill, filled), part(partExport, exported-inExport*call-filled),
		part(partFree, freed), part(partRelease, released-freed),
	}
}

// halves measures two functions that undo each other, and returns the nanoseconds of each,
// for one of so many structs.
func (m meter) halves(structs int, first, second func()) (ns, ofSecond float64) {
	repeat := m.calibrate(side{do: func(n int) {
		for range n {
			first()
			second()
		}
	}})
	var one, other []float64
	for range m.rounds {
		var a, b float64
		for range repeat {
			elapsed, _ := side{do: func(int) { first() }}.turn(1)
			a += elapsed
			elapsed, _ = side{do: func(int) { second() }}.turn(1)
			b += elapsed
		}
		one, other = append(one, a/float64(repeat*structs)), append(other, b/float64(repeat*structs))
	}
	return median(one), median(other)
}

// importSlope is what a column adds to an import.
func importSlope(m meter) float64 {
	few, many := newShape(int64Subject(100)), newShape(int64Subject(200))
	defer few.release()
	defer many.release()
	a, b := importing(few), importing(many)
	defer a.end()
	defer b.end()
	times := m.sideBySide([]side{a.ours, b.ours})
	return max(0, median(less(times[1].elapsed, times[0].elapsed))/100)
}

func less(a, b []float64) []float64 {
	out := make([]float64, len(a))
	for i := range out {
		out[i] = a[i] - b[i]
	}
	return out
}

// importParts measures a struct that is given and released, imported, and viewed.
func importParts(m meter, s shape, perColumn float64) []Part {
	in, producer := new(carray), s.producer()
	defer producer.Close()
	imported, viewed := importing(s), viewing(importView, allColumns)(s)
	defer imported.end()
	defer viewed.end()
	give := side{do: func(n int) {
		for range n {
			producer.Give(&in.CArrowDeviceArray)
			cdevice.ReleaseStruct(&in.CArrowDeviceArray)
		}
	}}
	times := m.sideBySide([]side{give, imported.ours, viewed.ours})
	given, whole, view := median(times[0].elapsed), median(times[1].elapsed), median(times[2].elapsed)
	columns := min(perColumn*float64(s.columns), whole-given)
	part := func(name string, ns float64) Part {
		return Part{Operation: importView, Columns: s.columns, Name: name, NS: max(0, ns)}
	}
	return []Part{
		part(partProducer, given), part(partBatch, whole-given-columns), part(partColumns, columns), part(partView, view-whole),
	}
}
