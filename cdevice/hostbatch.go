package cdevice

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/refcount"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// hostBatch is a record batch of arrow-go over the memory of a batch. It makes the array of a column
// when the column is first asked for, and holds it until its own release. Functions that need all
// columns behave as those of arrow-go's own record batches do.
type hostBatch struct {
	refs   refcount.Count
	schema *arrow.Schema
	rows   int64
	nodes  []tree.Node
	memory hostMemory

	mu      sync.Mutex // held while a column is made, by viewer
	viewer  viewer
	made    []atomic.Bool // whether columns[i] is set; nil after the last release
	columns []arrow.Array
}

var _ arrow.RecordBatchWithMetadata = (*hostBatch)(nil)

// newHostBatch makes a record batch of nodes in memory that the CPU can access. All that the nodes can
// be refused for is checked here, so that no function that makes a column later has to return an error.
func newHostBatch(owner *tree.Owner, schema *arrow.Schema, rows int64, nodes []tree.Node) (arrow.RecordBatch, error) {
	b := &hostBatch{
		schema: schema, rows: rows, nodes: nodes,
		made: make([]atomic.Bool, len(nodes)), columns: make([]arrow.Array, len(nodes)),
	}
	b.refs.Init("record batch of HostView")
	b.memory.start(owner)
	b.viewer.mem = &b.memory
	for i := range nodes {
		if err := b.check(i); err != nil {
			b.Release()
			return nil, fielderr.Within(tree.ColumnName(i), err)
		}
	}
	b.viewer.shared = true
	return b, nil
}

// check checks column i, or makes it, if arrow-go could refuse the array for another reason than the
// sizes of its buffers.
func (b *hostBatch) check(i int) error {
	if n := &b.nodes[i]; isPlain(n) {
		return b.viewer.check(n)
	}
	column, err := b.viewer.array(&b.nodes[i])
	if err != nil {
		return err
	}
	b.set(i, column)
	return hostread.CheckColumn(b.schema.Field(i), column)
}

// isPlain reports whether an array of the node has a type of arrow-go, for which arrow-go runs no code
// of the program and looks at no contents but those that viewer.check checks.
func isPlain(n *tree.Node) bool {
	switch n.Layout.Kind {
	case layout.Null, layout.Bits, layout.Fixed, layout.Binary32, layout.Binary64, layout.View:
		return n.Type.ID() != arrow.EXTENSION
	case layout.List32, layout.List64, layout.ListView, layout.ListView8, layout.FixedList, layout.Struct:
		if id := n.Type.ID(); id == arrow.EXTENSION || id == arrow.MAP {
			return false
		}
		for i := range n.Children {
			if !isPlain(&n.Children[i]) {
				return false
			}
		}
		return true
	}
	return false
}

// set sets column i, whose reference it takes.
func (b *hostBatch) set(i int, column arrow.Array) {
	b.columns[i] = column
	b.made[i].Store(true) // last: other goroutines read columns[i] only after it
}

// makeColumn makes column i. It panics if the memory has changed since the checks, which is a fault
// of the code that filled it.
func (b *hostBatch) makeColumn(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.made[i].Load() {
		return
	}
	column, err := b.viewer.array(&b.nodes[i])
	if err != nil {
		panic(fielderr.Within(tree.ColumnName(i), err))
	}
	b.set(i, column)
}

func (b *hostBatch) Column(i int) arrow.Array {
	if !b.made[i].Load() {
		b.makeColumn(i)
	}
	return b.columns[i]
}

func (b *hostBatch) Columns() []arrow.Array {
	for i := range b.made {
		if !b.made[i].Load() {
			b.makeColumn(i)
		}
	}
	return b.columns
}

func (b *hostBatch) Retain() { b.refs.Retain() }

func (b *hostBatch) Release() {
	if !b.refs.Release() {
		return
	}
	for i := range b.made {
		if b.made[i].Load() {
			b.columns[i].Release()
		}
	}
	b.made, b.columns = nil, nil
	b.memory.drop()
}

func (b *hostBatch) Schema() *arrow.Schema { return b.schema }

// Metadata returns no metadata: that of an IPC message, which a host view has none of.
func (b *hostBatch) Metadata() arrow.Metadata { return arrow.Metadata{} }

func (b *hostBatch) NumRows() int64 { return b.rows }

func (b *hostBatch) NumCols() int64 { return int64(len(b.columns)) }

func (b *hostBatch) ColumnName(i int) string { return b.schema.Field(i).Name }

// whole returns a record batch of arrow-go with the same columns. The caller releases it.
func (b *hostBatch) whole() arrow.RecordBatch {
	return array.NewRecordBatch(b.schema, b.Columns(), b.rows)
}

func (b *hostBatch) SetColumn(i int, column arrow.Array) (arrow.RecordBatch, error) {
	all := b.whole()
	defer all.Release()
	return all.SetColumn(i, column)
}

func (b *hostBatch) NewSlice(i, j int64) arrow.RecordBatch {
	all := b.whole()
	defer all.Release()
	return all.NewSlice(i, j)
}

func (b *hostBatch) String() string {
	all := b.whole()
	defer all.Release()
	return fmt.Sprint(all)
}

func (b *hostBatch) MarshalJSON() ([]byte, error) {
	all := b.whole()
	defer all.Release()
	return all.MarshalJSON()
}
