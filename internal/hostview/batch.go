// Package hostview makes record batches and arrays of arrow-go over memory that the CPU can access, without copying.
package hostview

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/arrowdevice/arrowdevice/internal/cstruct"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/refcount"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// Batch is a record batch of arrow-go over the memory of a batch. It makes the array of a column
// when the column is first asked for, and holds it until its own release. Functions that need all
// columns behave as those of arrow-go's own record batches do.
type Batch struct {
	refs     refcount.Count
	tooMany  func() // or nil; see Lenient
	schema   *arrow.Schema
	rows     int64
	metadata *arrow.Metadata  // nil: none
	nodes    []tree.Node      // of the columns; nil if flat makes them
	flat     *cstruct.Columns // in memory
	memory   hostMemory

	mu      sync.Mutex    // held while columns are made
	next    int           // the column after those that Column made last
	run     int           // how many it made
	upTo    atomic.Int64  // the columns before it are set
	made    []atomic.Bool // whether columns[i] is set, from upTo on; nil after the last release
	columns []arrow.Array
}

// fewColumns and moreColumns are the space for the columns of a view in its own allocation.
type (
	fewColumns struct {
		made    [4]atomic.Bool
		columns [4]arrow.Array
	}
	moreColumns struct {
		made    [16]atomic.Bool
		columns [16]arrow.Array
	}
)

// newBatch returns a view with space for so many columns.
func newBatch(columns int) *Batch {
	switch {
	case columns <= len(fewColumns{}.made):
		b := new(struct {
			Batch
			space fewColumns
		})
		b.made, b.columns = b.space.made[:columns], b.space.columns[:columns]
		return &b.Batch
	case columns <= len(moreColumns{}.made):
		b := new(struct {
			Batch
			space moreColumns
		})
		b.made, b.columns = b.space.made[:columns], b.space.columns[:columns]
		return &b.Batch
	}
	return &Batch{made: make([]atomic.Bool, columns), columns: make([]arrow.Array, columns)}
}

var _ arrow.RecordBatchWithMetadata = (*Batch)(nil)

// New makes a record batch of columns in memory that the CPU can access. All that their nodes can be refused for is
// checked here, so that no function that makes a column later has to return an error. It takes the reference to the
// owner, even if it returns an error.
func New(schema *arrow.Schema, rows int64, metadata *arrow.Metadata, columns *tree.Columns, owner *tree.Owner) (arrow.RecordBatch, error) {
	b := newBatch(columns.Len())
	b.schema, b.rows, b.metadata = schema, rows, metadata
	if b.flat = cstruct.FlatOf(columns); b.flat == nil {
		b.nodes = columns.Nodes()
	}
	if err := b.start(owner); err != nil {
		return nil, err
	}
	return b, nil
}

// start checks the columns. It takes the reference to the owner.
func (b *Batch) start(mem *tree.Owner) (err error) {
	b.refs.Init("record batch of HostView")
	b.memory.start(mem)
	defer func() {
		if err != nil {
			b.Release()
		}
	}()
	defer layout.RecoverType(&err) // an extension type is a program's
	return b.checkAll()
}

// viewer returns a viewer of the columns. shared is as its own.
func (b *Batch) viewer(shared bool) *viewer {
	v := viewers.Get().(*viewer)
	v.mem, v.replaceNulls, v.shared = &b.memory, b.flat != nil, shared
	return v
}

func (b *Batch) checkAll() error {
	if b.flat != nil && b.flat.Plan.FitAlways {
		return nil
	}
	var v *viewer
	for i := range b.columns {
		if b.flat != nil && b.flat.Plan.Arrays[i].FitsAlways() {
			continue
		}
		if v == nil {
			v = b.viewer(false)
			defer v.end()
		}
		if err := b.check(v, i); err != nil {
			return fielderr.Within(tree.ColumnName(i), err)
		}
	}
	return nil
}

// node returns the node of column i. It is valid until the viewer's next one.
func (b *Batch) node(v *viewer, i int) *tree.Node {
	if b.flat == nil {
		return &b.nodes[i]
	}
	b.flat.FlatNode(&v.flat, i)
	return &v.flat
}

// check checks column i, or makes it, if arrow-go could refuse the array for another reason than the
// sizes of its buffers.
func (b *Batch) check(v *viewer, i int) error {
	n := b.node(v, i)
	if isPlain(n) {
		return v.check(n)
	}
	column, err := v.array(n)
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
	case layout.List32, layout.List64, layout.ListView32, layout.ListView64, layout.FixedList, layout.Struct:
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

// isMade reports whether columns[i] is set: other goroutines read it only then.
func (b *Batch) isMade(i int) bool { return int64(i) < b.upTo.Load() || b.made[i].Load() }

// set sets column i, whose reference it takes.
func (b *Batch) set(i int, column arrow.Array) {
	b.columns[i] = column
	b.made[i].Store(true) // last: other goroutines read columns[i] only after it
}

// makeFrom makes column i and, if Column made the columns before it, twice as many as the last time: who reads one
// column after the other gets all of them for few locks, and who reads few has at most as many more.
func (b *Batch) makeFrom(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i != b.next {
		b.run = 0
	}
	b.run = max(2*b.run, 1)
	b.next = min(i+b.run, len(b.made))
	b.makeColumns(i, b.next)
}

// makeColumns makes columns i to j-1. The caller holds the lock. It panics if the memory has changed since the checks,
// which is a fault of the code that filled it.
func (b *Batch) makeColumns(i, j int) {
	v := b.viewer(true)
	defer v.end()
	inOrder := int64(i) == b.upTo.Load()
	if inOrder {
		defer func() { b.upTo.Store(int64(i)) }() // once: an atomic store is a part of what a column costs
	}
	for ; i < j; i++ {
		if b.isMade(i) {
			continue
		}
		column, err := b.column(v, i)
		if err != nil {
			panic(fielderr.Within(tree.ColumnName(i), err))
		}
		b.columns[i] = column
		if !inOrder {
			b.made[i].Store(true)
		}
	}
}

// column makes column i.
func (b *Batch) column(v *viewer, i int) (arrow.Array, error) {
	n := b.node(v, i)
	if b.flat != nil {
		if a := &b.flat.Plan.Arrays[i]; a.FitsAlways() {
			return v.fixed(n, a.SecondSize(n.Offset+n.Length)), nil
		}
	}
	return v.array(n)
}

func (b *Batch) Column(i int) arrow.Array {
	b.mustBeAlive("Column")
	if !b.isMade(i) {
		b.makeFrom(i)
	}
	return b.columns[i]
}

func (b *Batch) Columns() []arrow.Array {
	if b.tooMany == nil { // else it has none, as arrow-go's batches
		b.mustBeAlive("Columns")
	}
	for i := range b.made {
		if !b.isMade(i) {
			b.makeAll(i)
			break
		}
	}
	return b.columns
}

// mustBeAlive panics after the last Release, on behalf of the method.
func (b *Batch) mustBeAlive(method string) {
	if b.made == nil {
		b.ended(method) // apart, so that this function is inlined
	}
}

func (b *Batch) ended(method string) {
	panic(b.refs.Misuse(method + " after the last Release"))
}

// makeAll makes the columns from i on.
func (b *Batch) makeAll(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.makeColumns(i, len(b.made))
}

func (b *Batch) Retain() { b.refs.Retain() }

// Own makes the reference of the caller that of a reader, which lends the batch to a program; see [refcount.Count.Own].
func (b *Batch) Own() { b.refs.Own() }

// Disown undoes Own.
func (b *Batch) Disown() { b.refs.Disown() }

// Lenient is for package cdata: the batch has the schema itself, not a copy of it, and a Release too many
// calls tooMany in place of a panic, as arrow-go's batches do nothing then.
func (b *Batch) Lenient(schema *arrow.Schema, tooMany func()) {
	b.schema, b.tooMany = schema, tooMany
}

func (b *Batch) Release() {
	if b.dropsLast() {
		b.close()
	}
}

// dropsLast drops a reference, and reports whether it was the last one.
func (b *Batch) dropsLast() bool {
	if b.tooMany == nil {
		return b.refs.Release()
	}
	last, had := b.refs.TryRelease()
	if !had {
		b.tooMany()
	}
	return last
}

func (b *Batch) close() {
	for i := range b.made {
		if b.isMade(i) {
			b.columns[i].Release()
		}
	}
	b.made, b.columns = nil, nil
	b.memory.end()
}

func (b *Batch) Schema() *arrow.Schema { return b.schema }

func (b *Batch) Metadata() arrow.Metadata {
	if b.metadata == nil {
		return arrow.Metadata{}
	}
	return *b.metadata
}

func (b *Batch) NumRows() int64 { return b.rows }

func (b *Batch) NumCols() int64 { return int64(len(b.columns)) }

func (b *Batch) ColumnName(i int) string { return b.schema.Field(i).Name }

// whole returns a record batch of arrow-go with the same columns, for the method. The caller releases it.
func (b *Batch) whole(method string) arrow.RecordBatch {
	b.mustBeAlive(method)
	return array.NewRecordBatchWithMetadata(b.schema, b.Columns(), b.rows, b.Metadata())
}

func (b *Batch) SetColumn(i int, column arrow.Array) (arrow.RecordBatch, error) {
	all := b.whole("SetColumn")
	defer all.Release()
	return all.SetColumn(i, column)
}

func (b *Batch) NewSlice(i, j int64) arrow.RecordBatch {
	all := b.whole("NewSlice")
	defer all.Release()
	return all.NewSlice(i, j)
}

func (b *Batch) String() string {
	all := b.whole("String")
	defer all.Release()
	return fmt.Sprint(all)
}

func (b *Batch) MarshalJSON() ([]byte, error) {
	all := b.whole("MarshalJSON")
	defer all.Release()
	return all.MarshalJSON()
}
