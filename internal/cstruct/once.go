package cstruct

import (
	"sync"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/live"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// once keeps a record batch alive that is exported once: what a batch and an owner do otherwise, without references that
// are counted. Those that ended are kept for later exports, since a new one costs as much as the rest of an export.
type once struct {
	pins   tree.Pins
	rec    arrow.RecordBatch
	memory bridge.Kept
}

var onces = sync.Pool{New: func() any { return new(once) }}

// ExportOnce fills *out with a record batch of memory of the CPU, as an export of a batch that is wrapped for it, and released
// afterwards, does. It reports whether it did. For a record batch that is wrong, or unusual, it does nothing: the longer
// way finds an error, or what is unusual. A schema that is not that of the batch, unless it is nil, is unusual.
func ExportOnce(rec arrow.RecordBatch, of *arrow.Schema, out *abi.ArrowArray) (done bool) {
	if live.Tracing() { // an export has an entry of its own then
		return false
	}
	o := onces.Get().(*once)
	var block *bridge.Block
	defer func() {
		if done {
			return
		}
		_ = recover() // of code of another implementation
		if block != nil {
			o.memory.Drop(block)
		}
		o.reset()
	}()
	schema, columns, rows := rec.Schema(), rec.Columns(), rec.NumRows()
	if schema == nil || of != nil && schema != of || len(columns) == 0 || !schema.IsNativeEndian() {
		return false
	}
	plan, err := layout.PlanOf(schema)
	if err != nil || !fits(plan, columns) {
		return false
	}
	if block = o.memory.Take(blockSize(plan)); block == nil {
		return false
	}
	p := acceptor{plan: plan, pins: &o.pins}
	var f dataFiller
	f.start(plan, block, false)
	pointers := f.children(0, len(columns))
	for i, col := range columns {
		data := p.column(i, col, rows)
		if data == nil {
			return false
		}
		f.fill(i, data)
	}
	rec.Retain()
	o.rec = rec
	o.memory.Own(block, o)
	f.root(rows, pointers, out)
	tree.RootedLive.Add(1)
	return true
}

// Release is called when the last struct of the export is released.
func (o *once) Release() {
	rec := o.rec
	o.reset()
	tree.RootedLive.Add(-1)
	rec.Release() // last: it may panic
}

// reset makes o ready for another export.
func (o *once) reset() {
	o.pins.Unpin()
	o.rec = nil
	onces.Put(o)
}
