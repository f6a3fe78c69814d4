//go:build cgo && linux

package main

import (
	"context"
	"fmt"

	"github.com/arrowdevice/arrowdevice/cdata"
	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/ci/counts/probe"
	"github.com/arrowdevice/arrowdevice/device"
)

var background = context.Background()

func allPaths(sim *simulated) (all []path) {
	for _, columns := range []int{1, 100} {
		all = append(all, of(columns, exports(columns))...)
		all = append(all, of(columns, imports(columns))...)
		all = append(all, of(columns, streams(columns))...)
		all = append(all, of(columns, dropIn(columns))...)
	}
	all = append(all, single()...)
	return append(all, onGPU(sim.gpu)...)
}

// of names paths after the columns of their batches.
func of(columns int, all []path) []path {
	for i := range all {
		all[i].name += fmt.Sprintf(", %d col", columns)
	}
	return all
}

// How often paths are done: those that cost much, and those that cost little.
const few, many = 100, 500

// times is how often a path with batches of so many columns is done.
func times(columns int) int {
	if columns > 1 {
		return few
	}
	return many
}

// each is a path of an operation by itself.
func each(name string, n int, do func()) path {
	return path{name, n, func(n int) {
		for range n {
			do()
		}
	}}
}

func exports(columns int) []path {
	rec, b, out := numbers(columns), wrapped(columns), probe.New[cdevice.CArrowDeviceArray]()
	return []path{
		each("wrap, export, release in C", times(columns), func() {
			b := must(cdevice.WrapRecordBatch(rec, device.CPUDevice()))
			check(cdevice.ExportRecordBatch(b, out, nil))
			b.Release()
			probe.Release(out)
		}),
		each("export again, release in C", times(columns), func() {
			check(cdevice.ExportRecordBatch(b, out, nil))
			probe.Release(out)
		}),
		each("slice, export, release in C", times(columns), func() {
			part := must(b.Slice(1, rows-1))
			check(cdevice.ExportRecordBatch(part, out, nil))
			part.Release()
			probe.Release(out)
		}),
	}
}

func imports(columns int) []path {
	b, in := wrapped(columns), probe.New[cdevice.CArrowDeviceArray]()
	array, schema := lent(b), b.Schema()
	return []path{
		each("import from C, release", times(columns), func() {
			*in = *array
			must(cdevice.ImportRecordBatchWithSchema(in, schema)).Release()
		}),
		each("import from C, host view, release", times(columns), func() {
			*in = *array
			b := must(cdevice.ImportRecordBatchWithSchema(in, schema))
			view := must(b.HostView(background))
			b.Release()
			view.Columns()
			view.Release()
		}),
	}
}

func single() []path {
	rec, b := numbers(1), wrapped(100)
	column := must(cdevice.WrapArray(rec.Column(0), device.CPUDevice()))
	out, schema := probe.New[cdevice.CArrowDeviceArray](), probe.New[cdata.CArrowSchema]()
	return []path{
		each("export of an array, release in C", times(1), func() {
			check(cdevice.ExportArray(column, out, nil))
			probe.Release(out)
		}),
		each("schema export, release in C, 100 col", times(100), func() {
			check(cdevice.ExportSchema(b.Schema(), schema))
			probe.ReleaseSchema(schema)
		}),
		each("schema export and import, 100 col", times(100), func() {
			check(cdevice.ExportSchema(b.Schema(), schema))
			must(cdevice.ImportSchema(schema))
		}),
		each("slice, 100 col", times(1), func() { must(b.Slice(1, rows-1)).Release() }),
	}
}
