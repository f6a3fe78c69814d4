package cstruct

import (
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/layout"
)

// ExportArrowRecordBatch fills *out with a record batch in memory of the CPU, whose reference and pins are the export's,
// without an owner in between. Otherwise the export is as that of a Wrapped. It reports whether it did so. It refuses a
// record batch that Accept refuses.
func ExportArrowRecordBatch(rec arrow.RecordBatch, out *abi.ArrowArray) (done bool) {
	held := unusedRecords.Get().(*heldRecord)
	var block *bridge.Block
	defer func() {
		if done {
			return
		}
		_ = recover() // of code of another implementation
		if block != nil {
			block.Cancel()
		}
		held.drop()
	}()
	schema, columns, rows := rec.Schema(), rec.Columns(), rec.NumRows()
	if schema == nil || len(columns) == 0 || !schema.IsNativeEndian() {
		return false
	}
	plan, err := layout.PlanOf(schema)
	if err != nil || !fits(plan, columns) {
		return false
	}
	if block = bridge.NewExport(blockSize(plan)); block == nil {
		return false
	}
	p := acceptor{plan: plan, pins: &held.pins}
	var f dataFiller
	f.start(plan, block)
	pointers := f.children(0, len(columns))
	for i, col := range columns {
		data := p.column(i, col, rows)
		if data == nil {
			return false
		}
		f.fill(i, data)
	}
	rec.Retain()
	held.rec = rec
	f.root(rows, pointers, out)
	block.Begin(PlainKind, f.count(), held)
	return true
}

// heldRecord is a record batch that an export holds, pinned. The handle of the export keeps it reachable.
type heldRecord struct {
	rec  arrow.RecordBatch
	pins bridge.Pins
}

var unusedRecords = sync.Pool{New: func() any { return new(heldRecord) }}

// Release is called when the last struct of the export is released.
func (h *heldRecord) Release() {
	rec := h.rec
	h.drop()
	rec.Release() // last: it may panic
}

// drop ends the pins, and keeps h for another export.
func (h *heldRecord) drop() {
	h.pins.Unpin()
	h.rec = nil
	unusedRecords.Put(h)
}
