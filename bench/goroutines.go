package main

import (
	"sync"

	"github.com/arrowdevice/arrowdevice/cdevice"
	"github.com/arrowdevice/arrowdevice/device"
)

// goroutines is how many export side by side where that is measured.
const goroutines = 4

const (
	ownBatches = "export+release, 4 goroutines"
	oneBatch   = "export+release of one batch, 4 goroutines"
	// oneGoroutine is the baseline: the ratio compares exports per second, so that 4 is the
	// maximum.
	oneGoroutine = "1 goroutine"
)

// exporter exports a batch into a struct that no other exporter has.
type exporter struct {
	batch *cdevice.RecordBatch
	out   *carray
}

func newExporter(s shape) exporter {
	return exporter{batch: must(cdevice.WrapRecordBatch(s.rec, device.CPUDevice())), out: new(carray)}
}

func (e exporter) do(n int) {
	for range n {
		check(cdevice.ExportRecordBatch(e.batch, &e.out.CArrowDeviceArray, nil))
		cdevice.ReleaseCArrowDeviceArray(&e.out.CArrowDeviceArray)
	}
}

// exportsSideBySide measures goroutines that export, each a batch of its own or all the
// same one: then all of them change its reference count.
func exportsSideBySide(name string, s shape, same bool) operation {
	all := make([]exporter, goroutines)
	for i := range all {
		all[i] = newExporter(s)
		if same && i > 0 {
			all[i].batch.Release()
			all[i].batch = all[0].batch
			all[i].batch.Retain()
		}
	}
	return operation{
		name: name,
		ours: func(n int) {
			var wg sync.WaitGroup
			for i, e := range all {
				wg.Go(func() { e.do((n + i) / len(all)) })
			}
			wg.Wait()
		},
		peers: []peer{{oneGoroutine, all[0].do}},
		close: func() {
			for _, e := range all {
				e.batch.Release()
			}
		},
	}
}

// goroutineOperations are the measurements of more goroutines than one.
func goroutineOperations(s shape) []operation {
	if s.name != "int64" || s.columns != 1 && s.columns != 100 {
		return nil
	}
	return []operation{exportsSideBySide(ownBatches, s, false), exportsSideBySide(oneBatch, s, true)}
}
