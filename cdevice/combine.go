package cdevice

import (
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/arrowdevice/arrowdevice/internal/argument"
	"github.com/arrowdevice/arrowdevice/internal/copyplan"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// RecordBatchFromArrays makes a batch of arrays, one for each field of the schema: columns of other batches,
// results of [NewArray], imported arrays. The arrays must have the types of the fields, the same length,
// and memory on the same device. The batch shares their memory and has the schema's names, nullability
// and metadata.
//
// If several columns have events, the batch has a new one, which is complete when all of theirs are: a
// stream of the device waits for them. RecordBatchFromArrays does not wait itself.
//
// The arrays stay the caller's; the result is owned by the caller and holds their memory on its own. Errors
// name the column, and wrap arrow.ErrInvalid for one that does not fit.
func RecordBatchFromArrays(schema *arrow.Schema, columns ...*Array) (*RecordBatch, error) {
	if schema == nil {
		return nil, fielderr.Absent(fielderr.OpNew, "schema", "a schema")
	}
	if len(columns) != schema.NumFields() {
		return nil, fielderr.Fields(fielderr.OpNew, schema.NumFields(), len(columns))
	}
	if len(columns) == 0 {
		return nil, fielderr.Invalid(fielderr.OpNew, "columns", "none", "at least one: the columns have the number of rows and the device")
	}
	c := combination{op: fielderr.OpNew, rows: -1}
	defer c.release()
	for i, a := range columns {
		if err := c.addArray(tree.ColumnName(i), a, schema.Field(i).Type); err != nil {
			return nil, err
		}
	}
	return c.batch(schema)
}

// WithColumn returns the batch with one more column or, if it has a field of that name, with another
// column in its place. Everything said of [RecordBatchFromArrays] holds for the array. The result shares the memory
// of both, keeps the schema's metadata, and is owned by the caller. Several fields of that name are an error.
func (b *RecordBatch) WithColumn(field arrow.Field, a *Array) (*RecordBatch, error) {
	if err := b.hold(fielderr.OpWithColumn); err != nil {
		return nil, err
	}
	c := combination{op: fielderr.OpWithColumn, rows: b.rows}
	defer c.release()
	c.add(b.mem, b.at())
	at, err := placeOf(field.Name, b.schema)
	if err != nil {
		return nil, err
	}
	c.nodes = slices.Clone(b.nodes())
	if err := c.addArray("column", a, field.Type); err != nil {
		return nil, err
	}
	last := len(c.nodes) - 1
	fields := append(slices.Clone(b.schema.Fields()), field)
	if at < last {
		c.nodes[at], fields[at] = c.nodes[last], field
		c.nodes, fields = c.nodes[:last], fields[:last]
	}
	metadata := b.schema.Metadata()
	return c.batch(arrow.NewSchema(fields, &metadata))
}

// placeOf returns the index of the field of a name, or of the one after the last.
func placeOf(name string, schema *arrow.Schema) (int, error) {
	switch found := schema.FieldIndices(name); len(found) {
	case 0:
		return schema.NumFields(), nil
	case 1:
		return found[0], nil
	default:
		return 0, fielderr.Invalid(fielderr.OpWithColumn, "field.Name", name, fmt.Sprintf("a name that %d fields of the batch do not share", len(found)))
	}
}

// combination is the parts of a batch that shares memory of several owners.
type combination struct {
	op     string
	rows   int64         // -1: not known yet
	owners []*tree.Owner // a reference to each
	at     tree.Location
	events []tree.Location // of owners with different events
	nodes  []tree.Node
}

// add adds an owner, and takes the caller's reference.
func (c *combination) add(mem *tree.Owner, at tree.Location) {
	if len(c.owners) == 0 {
		c.at = at
	}
	c.owners = append(c.owners, mem)
	c.at.Assumed = c.at.Assumed && at.Assumed
	if c.at.Dev == nil {
		c.at.Dev = at.Dev
	}
	if at.Event != 0 && !slices.ContainsFunc(c.events, func(e tree.Location) bool { return e.Event == at.Event }) {
		c.events = append(c.events, at)
	}
}

func (c *combination) addArray(name string, a *Array, dt arrow.DataType) error {
	if a == nil {
		return fielderr.Absent(c.op, name, "an array")
	}
	if err := a.hold(c.op); err != nil {
		return fielderr.Within(name, err)
	}
	c.add(a.mem, a.at())
	switch {
	case argument.IsNil(dt):
		return fielderr.Absent(c.op, name+".type", "a data type")
	case !arrow.TypeEqual(a.field.Type, dt):
		return fielderr.Invalid(c.op, name+".type", a.field.Type, fmt.Sprintf("the field's: %s", fielderr.Type(dt)))
	case a.location.ID != c.at.ID:
		return fielderr.Invalid(c.op, name+".DeviceID", a.location.ID.String(), c.at.ID.String()+", the device of the other columns")
	case c.rows >= 0 && a.node.Length != c.rows:
		return fielderr.Invalid(c.op, name+".length", a.node.Length, fmt.Sprintf("%d, the length of the other columns", c.rows))
	}
	c.rows = a.node.Length
	c.nodes = append(c.nodes, a.node)
	return nil
}

// release drops the references.
func (c *combination) release() {
	for _, m := range c.owners {
		defer m.Release() // even if a callback of a producer panics
	}
}

// batch makes the batch.
func (c *combination) batch(schema *arrow.Schema) (*RecordBatch, error) {
	mem := tree.Join(c.owners, c.nodes)
	at := c.at
	at.Event = 0
	switch len(c.events) {
	case 0:
	case 1:
		at.Event = c.events[0].Event
	default:
		joined, after, err := c.afterAll(mem, at)
		mem.Release()
		if err != nil {
			return nil, err
		}
		mem, at = joined, after
	}
	return newRecordBatch(mem, at, schema, c.rows, underTypes(c.nodes, schema)), nil
}

// afterAll returns an owner of the memory and of an event that is complete when those of all columns are.
func (c *combination) afterAll(mem *tree.Owner, at tree.Location) (*tree.Owner, tree.Location, error) {
	dev, err := at.Device()
	if err != nil {
		return nil, at, fielderr.New(c.op, "sync_event", nil, "one event for all columns", err)
	}
	s, err := copyplan.NewStream(dev)
	if err != nil {
		return nil, at, fmt.Errorf("cdevice: %s: %w", c.op, err)
	}
	defer s.Close()
	for _, e := range c.events {
		if err := e.WaitOn(s); err != nil {
			return nil, at, err
		}
	}
	return recordEvent(mem, at, s)
}
