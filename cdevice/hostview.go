package cdevice

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/bridge"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/hostread"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/refcount"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// HostView returns the batch as an arrow-go record batch over the same memory. It first waits for the
// batch's event; ctx ends the wait with an error.
//
// The CPU must be able to access the memory (CPU, pinned or managed memory), otherwise the error wraps
// device.ErrNotSupported. For a batch of [WrapRecordBatch], HostView returns the record batch that was
// wrapped.
//
// The result is owned by the caller. It keeps the memory alive until its release, and so does every
// column that is retained, except one of type null, which has no memory. It makes the array of a
// column when the column is first asked for, on any goroutine. arrow-go's rules for concurrent use
// apply: an array counts its nulls at the first call of NullN, without a lock. The contents are
// checked only as far as the sizes of the buffers require; [RecordBatch.ValidateFull] checks all of
// them.
func (b *RecordBatch) HostView(ctx context.Context) (arrow.RecordBatch, error) {
	if err := b.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer b.mem.Release()
	if err := readyForHost(ctx, b.at()); err != nil {
		return nil, err
	}
	if b.host != nil {
		b.host.Retain()
		return b.host, nil
	}
	return newHostBatch(b)
}

// HostView returns the array as an arrow-go array over the same memory; see
// [RecordBatch.HostView].
func (a *Array) HostView(ctx context.Context) (arrow.Array, error) {
	if err := a.hold(fielderr.OpRead); err != nil {
		return nil, err
	}
	defer a.mem.Release()
	if err := readyForHost(ctx, a.at()); err != nil {
		return nil, err
	}
	if a.host != nil {
		a.host.Retain()
		return a.host, nil
	}
	v := viewer{mem: new(hostMemory)}
	v.mem.start(a.mem)
	defer v.mem.drop()
	arr, err := v.array(&a.node)
	if err != nil {
		return nil, fielderr.Within("array", err)
	}
	return arr, nil
}

// viewer builds arrow-go's data over the memory of a tree of nodes. The small slices that
// arrow-go's data keeps are cut from one allocation.
type viewer struct {
	mem     *hostMemory
	sizes   []int64 // scratch
	buffers []*memory.Buffer
	// exact is positive inside types whose children's null counts arrow-go reads at once. It takes
	// an unknown count for a null.
	exact int
	// shared is true if other arrays use the memory, so that an array that arrow-go refuses must not end it.
	shared bool
}

// check returns an error if the buffers of the node or of one below it cannot have the sizes that their
// contents demand.
func (v *viewer) check(n *tree.Node) (err error) {
	if v.sizes, err = hostread.CheckSizes(v.sizes, n); err != nil {
		return err
	}
	for i := range n.Children {
		if err := v.check(&n.Children[i]); err != nil {
			return fielderr.Within(n.ChildName(i), err)
		}
	}
	return nil
}

func (v *viewer) array(n *tree.Node) (arr arrow.Array, err error) {
	data, err := v.data(n)
	if err != nil {
		return nil, err
	}
	defer data.Release()
	defer hostread.RecoverArrow(&err, v.refused)
	return array.MakeFromData(data), nil
}

// refused ends the memory of an array that arrow-go refused, whose references cannot be dropped.
func (v *viewer) refused() {
	if !v.shared {
		v.mem.abandon()
	}
}

func (v *viewer) data(n *tree.Node) (data *array.Data, err error) {
	st := n.Storage()
	if v.sizes, err = hostread.Sizes(v.sizes[:0], n, st); err != nil {
		return nil, err
	}
	// arrow-go keeps an entry for a bitmap even if the type has none.
	shift := 1
	if n.Layout.Validity {
		shift = 0
	}
	buffers := v.takeBuffers(shift + len(v.sizes))
	for i, size := range v.sizes {
		addr := n.Buffers[i]
		if n.Length == 0 && addr != 0 {
			addr = bridge.Zeros // a producer need not provide the single offset of an empty array
		}
		if addr != 0 {
			buffers[shift+i] = v.mem.buffer(abi.Slice[byte](addr, int(size)))
		}
	}
	children, err := v.children(n)
	if err == nil {
		nulls := n.Nulls
		if v.exact > 0 {
			nulls = hostread.Nulls(n)
		}
		if n.Layout.Kind == layout.Dictionary {
			data = array.NewDataWithDictionary(n.Type, int(n.Length), buffers, int(nulls), int(n.Offset), children[0].(*array.Data))
		} else {
			data = array.NewData(n.Type, int(n.Length), buffers, children, int(nulls), int(n.Offset))
		}
	}
	// The data holds references of its own.
	for _, b := range buffers {
		if b != nil {
			b.Release()
		}
	}
	for _, c := range children {
		c.Release()
	}
	return data, err
}

// children returns the data of the children; on an error, of those before it.
func (v *viewer) children(n *tree.Node) ([]arrow.ArrayData, error) {
	if len(n.Children) == 0 {
		return nil, nil
	}
	if n.Layout.Kind == layout.RunEnds || n.Storage().ID() == arrow.MAP {
		v.exact++
		defer func() { v.exact-- }()
	}
	children := make([]arrow.ArrayData, 0, len(n.Children))
	for i := range n.Children {
		child, err := v.data(&n.Children[i])
		if err != nil {
			return children, fielderr.Within(n.ChildName(i), err)
		}
		children = append(children, child)
	}
	return children, nil
}

func (v *viewer) takeBuffers(n int) []*memory.Buffer {
	const atOnce = 16
	if len(v.buffers) < n {
		v.buffers = make([]*memory.Buffer, max(n, atOnce))
	}
	return tree.Take(&v.buffers, n)
}

// readyForHost waits for the event. It returns an error if the CPU cannot access the memory.
func readyForHost(ctx context.Context, at tree.Location) error {
	if err := fielderr.CheckContext(fielderr.OpRead, ctx); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("cdevice: read: %w", err)
	}
	if !at.CPUAccessible() {
		return fmt.Errorf("cdevice: read: %s: %w", at.NotAccessible(), device.ErrNotSupported)
	}
	return at.Synchronize(ctx)
}

// hostBatch is a record batch of arrow-go over the memory of a batch. It makes the array of a column
// when the column is first asked for, and holds it until its own release. Functions that need all
// columns behave as those of arrow-go's own record batches do.
type hostBatch struct {
	refs     refcount.Count
	tooMany  func() // or nil; see Lenient
	schema   *arrow.Schema
	rows     int64
	metadata arrow.Metadata
	nodes    []tree.Node
	memory   hostMemory

	mu      sync.Mutex // held while a column is made, by viewer
	viewer  viewer
	made    []atomic.Bool // whether columns[i] is set; nil after the last release
	columns []arrow.Array
}

var _ arrow.RecordBatchWithMetadata = (*hostBatch)(nil)

// newHostBatch makes a record batch of a batch in memory that the CPU can access. All that its nodes can
// be refused for is checked here, so that no function that makes a column later has to return an error.
func newHostBatch(of *RecordBatch) (arrow.RecordBatch, error) {
	nodes := of.nodes()
	b := &hostBatch{
		schema: of.schema, rows: of.rows, metadata: of.Metadata(), nodes: nodes,
		made: make([]atomic.Bool, len(nodes)), columns: make([]arrow.Array, len(nodes)),
	}
	b.refs.Init("record batch of HostView")
	b.memory.start(of.mem)
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

// Lenient is for package cdata: the batch has the schema itself, not a copy of it, and a Release too many
// calls tooMany in place of a panic, as arrow-go's batches do nothing then.
func (b *hostBatch) Lenient(schema *arrow.Schema, tooMany func()) {
	b.schema, b.tooMany = schema, tooMany
}

func (b *hostBatch) Release() {
	if b.dropsLast() {
		b.close()
	}
}

// dropsLast drops a reference, and reports whether it was the last one.
func (b *hostBatch) dropsLast() bool {
	if b.tooMany == nil {
		return b.refs.Release()
	}
	last, had := b.refs.TryRelease()
	if !had {
		b.tooMany()
	}
	return last
}

func (b *hostBatch) close() {
	for i := range b.made {
		if b.made[i].Load() {
			b.columns[i].Release()
		}
	}
	b.made, b.columns = nil, nil
	b.memory.drop()
}

func (b *hostBatch) Schema() *arrow.Schema { return b.schema }

func (b *hostBatch) Metadata() arrow.Metadata { return b.metadata }

func (b *hostBatch) NumRows() int64 { return b.rows }

func (b *hostBatch) NumCols() int64 { return int64(len(b.columns)) }

func (b *hostBatch) ColumnName(i int) string { return b.schema.Field(i).Name }

// whole returns a record batch of arrow-go with the same columns. The caller releases it.
func (b *hostBatch) whole() arrow.RecordBatch {
	return array.NewRecordBatchWithMetadata(b.schema, b.Columns(), b.rows, b.metadata)
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
