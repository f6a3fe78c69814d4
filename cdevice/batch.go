package cdevice

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/device"
	"github.com/arrowdevice/arrowdevice/internal/excerpt"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// RecordBatch is a record batch together with the device that its memory is on. It is immutable and
// may be used from any goroutine.
//
// It is not an arrow.RecordBatch, since arrow-go reads arrays through []byte, and reading a device
// address crashes the process. [RecordBatch.HostView] and [RecordBatch.CopyToHost] return one.
//
// A RecordBatch is reference counted, and starts with one reference. Its slices, columns and exports
// hold the memory on their own: they stay valid when the batch is released.
type RecordBatch struct {
	shared
	schema  *arrow.Schema
	rows    int64
	columns *tree.Columns     // in memory that mem keeps; also those of other views of the batch
	host    arrow.RecordBatch // the wrapped batch, if it has the same rows and columns

	metadata *arrow.Metadata // nil: none
}

// newRecordBatch returns a batch of nodes that exist. It takes a reference to mem.
func newRecordBatch(mem *tree.Owner, at tree.Location, schema *arrow.Schema, rows int64, nodes []tree.Node) *RecordBatch {
	b := new(struct {
		RecordBatch
		columns tree.Columns
	})
	b.columns.SetMade(nodes)
	b.location = at
	b.start(mem, schema, rows, &b.columns)
	return &b.RecordBatch
}

// start sets the fields of a batch whose location is set.
func (b *RecordBatch) start(mem *tree.Owner, schema *arrow.Schema, rows int64, columns *tree.Columns) {
	b.schema, b.rows, b.columns = schema, rows, columns
	b.begin("RecordBatch", mem)
}

// nodes returns the nodes of the columns. The caller holds a reference to the owner, not only to the
// batch: making nodes may read memory of the producer.
func (b *RecordBatch) nodes() []tree.Node { return b.columns.Nodes() }

// under returns the batch with another schema of the same types, which may differ in the metadata
// of fields and nested fields; b itself if the schema is b's or a copy of it. It takes the caller's reference to b
// and returns one.
func (b *RecordBatch) under(schema *arrow.Schema) *RecordBatch {
	if sameSchema(b.schema, schema) {
		return b
	}
	defer b.Release()
	columns := underTypes(b.nodes(), schema)
	host := b.host
	if host != nil && !identicalSchemas(b.schema, schema) { // which may panic: an extension type is a program's
		host = nil
	}
	same := newRecordBatch(b.mem.Retain(), b.at(), schema, b.rows, columns)
	same.metadata, same.host = b.metadata, host
	return same
}

// Schema returns the schema, with its metadata. Other batches may share it: the program must not assign to it.
func (b *RecordBatch) Schema() *arrow.Schema { return b.schema }

// NumRows returns the number of rows.
func (b *RecordBatch) NumRows() int64 { return b.rows }

// NumCols returns the number of columns.
func (b *RecordBatch) NumCols() int { return b.schema.NumFields() }

// Metadata returns the metadata of this batch, which is not part of the schema: that of the record batch that was
// wrapped (arrow.RecordBatchWithMetadata), that of [RecordBatch.WithMetadata], or what the producer of an
// asynchronous stream passed with the batch. Otherwise it is empty.
func (b *RecordBatch) Metadata() arrow.Metadata {
	if b.metadata == nil {
		return arrow.Metadata{}
	}
	return *b.metadata
}

// WithMetadata returns a batch that shares this batch's memory and has the metadata, which
// [ExportAsync] and packages flight and share pass on with it. Other exports, slices, selections and
// [RecordBatch.WithColumn] drop the metadata; copies and [RecordBatch.HostView] keep it. The result is owned by the
// caller. WithMetadata panics if the batch was released.
func (b *RecordBatch) WithMetadata(md arrow.Metadata) *RecordBatch {
	b.mustHold(fielderr.OpRead)
	with := b.located(b.mem, b.at())
	with.setMetadata(md)
	if !md.Equal(b.Metadata()) {
		with.host = nil // which has its own
	}
	return with
}

// setMetadata sets the metadata of a batch that no other goroutine has yet.
func (b *RecordBatch) setMetadata(md arrow.Metadata) {
	b.metadata = nil
	if md.Len() > 0 {
		own := md // a batch without metadata allocates nothing
		b.metadata = &own
	}
}

// Column returns column i as an array that shares the batch's memory. The result is owned by the
// caller. Column panics if i is out of range, as indexing a slice does, or if the batch was released.
// [RecordBatch.ColumnIndex] finds a column by its name.
func (b *RecordBatch) Column(i int) *Array {
	if err := b.alive(fielderr.OpColumn); err != nil {
		panic(err)
	}
	if err := checkIndex(fielderr.OpColumn, i, b.NumCols(), "column"); err != nil {
		panic(err)
	}
	b.mustHold(fielderr.OpColumn)
	return newArray(b.mem, b.at(), b.schema.Field(i), b.nodes()[i])
}

// checkIndex checks the index of one of n items.
func checkIndex(op string, i, n int, item string) error {
	if i >= 0 && i < n {
		return nil
	}
	return fielderr.Invalid(op, "i", i, "an index of the "+fielderr.HowMany(n, item))
}

// ColumnIndex returns the index of the column with a name, for [RecordBatch.Column], [RecordBatch.ColumnView] and
// [RecordBatch.Select]. No column of that name, or several, are an error that wraps arrow.ErrKey.
func (b *RecordBatch) ColumnIndex(name string) (int, error) {
	found := b.schema.FieldIndices(name)
	if len(found) == 1 {
		return found[0], nil
	}
	want := fmt.Sprintf("a name that %d columns do not share", len(found))
	if len(found) == 0 {
		want = "a name that one column has, of " + cmp.Or(namesOf(b.schema), "none")
	}
	return 0, fielderr.New(fielderr.OpColumn, "name", excerpt.Quote(name), want, arrow.ErrKey)
}

// mostNames is the most names of columns that an error lists.
const mostNames = 20

// namesOf returns the names of the columns.
func namesOf(schema *arrow.Schema) string {
	var names []string
	for i := range min(schema.NumFields(), mostNames) {
		names = append(names, excerpt.Quote(schema.Field(i).Name))
	}
	if more := schema.NumFields() - mostNames; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// Slice returns rows [i, j) as a batch that shares this batch's memory. It does not read, copy or
// wait. Null counts other than zero become unknown. The result is owned by the caller.
func (b *RecordBatch) Slice(i, j int64) (*RecordBatch, error) {
	if err := b.alive(fielderr.OpSlice); err != nil {
		return nil, err
	}
	if err := checkSlice(i, j, b.rows); err != nil {
		return nil, err
	}
	if err := b.hold(fielderr.OpSlice); err != nil {
		return nil, err
	}
	nodes := b.nodes()
	columns := make([]tree.Node, len(nodes))
	for k := range columns {
		columns[k] = nodes[k].Slice(i, j)
	}
	return newRecordBatch(b.mem, b.at(), b.schema, j-i, columns), nil
}

// Select returns the columns at the indices, in their order, as a batch that shares this batch's
// memory. An index may appear more than once. The result is owned by the caller.
func (b *RecordBatch) Select(indices ...int) (*RecordBatch, error) {
	if err := b.alive(fielderr.OpSelect); err != nil {
		return nil, err
	}
	fields := make([]arrow.Field, len(indices))
	for k, i := range indices {
		if i < 0 || i >= b.NumCols() {
			return nil, fielderr.Invalid(fielderr.OpSelect, fmt.Sprintf("indices[%d]", k), i, fmt.Sprintf("0 to %d", b.NumCols()-1))
		}
		fields[k] = b.schema.Field(i)
	}
	if err := b.hold(fielderr.OpSelect); err != nil {
		return nil, err
	}
	nodes := b.nodes()
	columns := make([]tree.Node, len(indices))
	for k, i := range indices {
		columns[k] = nodes[i]
	}
	metadata := b.schema.Metadata()
	return newRecordBatch(b.mem, b.at(), arrow.NewSchema(fields, &metadata), b.rows, columns), nil
}

// String describes the batch without reading its memory.
func (b *RecordBatch) String() string {
	return fmt.Sprintf("record batch on %s, %d rows: %s", b.location.ID, b.rows, b.schema)
}

// UsedOn records that work on the stream, which may be of any device, accesses the memory. The
// final Release then returns at once, and the memory is released after the work enqueued by then on
// that stream: on the releasing goroutine if none is pending, otherwise on one of the device's backend,
// which also calls the producer's release callback. (Compare PyTorch's Tensor.record_stream.)
//
// The stream must live until the memory is released, unless it is closed before. A stream that is closed
// already is an error that wraps arrow.ErrInvalid. If the stream is closed at the release, or being
// captured, or is the default stream of each thread, the memory is released after all work of
// the stream's device; so is memory that more than 16 streams use. [ExportRecordBatch] says what exported memory
// waits for.
func (b *RecordBatch) UsedOn(stream device.Stream) error { return b.usedOn(stream, b.nodes) }

// tree returns the columns of the batch. The caller holds the memory.
func (b *RecordBatch) tree() tree.Tree {
	return tree.Tree{Mem: b.mem, At: b.at(), Nodes: b.nodes(), Name: tree.ColumnName}
}

// atForCPU returns the location for a function that reads the memory in place; see [tree.Location.ForCPU]. The
// caller holds the memory. The nodes of memory that the CPU can access by its type need not be made.
func (b *RecordBatch) atForCPU() tree.Location {
	at := b.at()
	if at.CPUAccessible() {
		return at
	}
	return at.ForCPU(b.nodes())
}
