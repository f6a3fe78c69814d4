package cdevice

import (
	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// wrappedBatch is all that a wrapped record batch needs, in one allocation.
type wrappedBatch struct {
	RecordBatch
	owner  tree.Owner
	source wrappedColumns
}

// wrappedColumns are columns of array data, which exports read. Their nodes are made when other
// functions need them.
type wrappedColumns struct {
	cstruct.Wrapped
	mem *tree.Owner
}

// wrapColumns wraps columns of memory of the CPU. It returns nil for a record batch that is wrong, or
// unusual; WrapRecordBatch then looks closer.
func wrapColumns(rec arrow.RecordBatch, schema *arrow.Schema, columns []arrow.Array, rows int64, at tree.Location) *RecordBatch {
	if schema == nil || len(columns) == 0 || at.ID.Type != device.CPU || !schema.IsNativeEndian() {
		return nil
	}
	plan, err := layout.PlanOf(schema)
	if err != nil || !plan.Simple {
		return nil
	}
	rec.Retain()
	b := new(wrappedBatch)
	b.owner.Own(rec)
	b.source = wrappedColumns{cstruct.Wrapped{Plan: plan}, &b.owner}
	accepted := false
	defer func() {
		if !accepted { // also if code of another implementation panics
			b.owner.Release()
		}
	}()
	if accepted = b.source.Accept(columns, &b.owner, rows); !accepted {
		return nil
	}
	b.own.SetSource(len(columns), &b.source)
	b.start(&b.owner, at, schema, rows)
	b.host = rec
	return &b.RecordBatch
}

// MakeNodes makes the nodes of the columns, whose checks Accept made.
func (c *wrappedColumns) MakeNodes() []tree.Node {
	w := wrapper{pinned: true}
	for _, data := range c.Data {
		mustNodes(w.measure(data, 0))
	}
	w.start(c.mem, tree.Location{ID: device.CPUDevice().ID()})
	nodes := w.takeNodes(len(c.Data))
	for i, data := range c.Data {
		mustNodes(w.fill(&nodes[i], data))
	}
	return nodes
}

// mustNodes panics for data that was changed after it was wrapped, which arrow-go does not allow.
func mustNodes(err error) {
	if err != nil {
		panic(err)
	}
}
