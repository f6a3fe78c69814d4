//go:build cgo

package cdevice

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/cdata"

	"github.com/arrowdevice/arrowdevice/internal/abi"
	"github.com/arrowdevice/arrowdevice/internal/fielderr"
	"github.com/arrowdevice/arrowdevice/internal/layout"
	"github.com/arrowdevice/arrowdevice/internal/schema"
	"github.com/arrowdevice/arrowdevice/internal/tree"
)

// ImportRecordBatch makes a batch of a C struct, without copying. Nothing of the
// data is read and nothing waits: the structs are checked against the schema,
// and a sync event is kept for whoever reads the data first. What the buffers hold,
// [RecordBatch.ValidateFull] checks.
//
// The C struct is a struct array without nulls and without an offset of its own;
// ImportArray takes one that has them.
//
// It takes ownership of *arr and *sch, even if it returns an error: both are
// marked released. The producer's release callback runs when the last user of
// the memory is gone, on that user's thread.
//
// Errors are [FieldError], and wrap arrow.ErrInvalid for malformed structs,
// [ErrReleased] for released ones, arrow.ErrNotImplemented for types that
// arrow-go does not have.
//
// https://arrow.apache.org/docs/format/CDeviceDataInterface.html#the-arrowdevicearray-structure
func ImportRecordBatch(arr *CArrowDeviceArray, sch *cdata.CArrowSchema, opts ...ImportOption) (*RecordBatch, error) {
	return importBatchAndSchema(deviceInput(arr), sch, opts)
}

// ImportRecordBatchWithSchema is [ImportRecordBatch] where the schema is known,
// as it is for a stream.
//
// It takes ownership of *arr, even if it returns an error.
func ImportRecordBatchWithSchema(arr *CArrowDeviceArray, s *arrow.Schema, opts ...ImportOption) (*RecordBatch, error) {
	return importBatch(deviceInput(arr), s, opts)
}

// ImportArray makes an array of a C struct and its schema; all of
// [ImportRecordBatch] holds. The array's Field has the schema's name,
// nullability and metadata.
//
// It takes ownership of *arr and *sch, even if it returns an error.
func ImportArray(arr *CArrowDeviceArray, sch *cdata.CArrowSchema, opts ...ImportOption) (*Array, error) {
	return importArrayAndSchema(deviceInput(arr), sch, opts)
}

// ImportArrayWithType is [ImportArray] where the type is known.
//
// It takes ownership of *arr, even if it returns an error.
func ImportArrayWithType(arr *CArrowDeviceArray, dt arrow.DataType, opts ...ImportOption) (*Array, error) {
	return importArray(deviceInput(arr), arrow.Field{Type: dt, Nullable: true}, opts)
}

// ImportSchema makes an arrow-go schema of a C schema, which must be a struct.
// It takes ownership of *sch, even if it returns an error.
func ImportSchema(sch *cdata.CArrowSchema) (*arrow.Schema, error) {
	return schema.ImportSchema(schemaMirror(sch))
}

// ImportField makes an arrow-go field of a C schema. It takes ownership of *sch,
// even if it returns an error.
func ImportField(sch *cdata.CArrowSchema) (arrow.Field, error) {
	return schema.Import(schemaMirror(sch))
}

// The four imports, of the structs of either interface.

func importBatchAndSchema(in input, sch *cdata.CArrowSchema, opts []ImportOption) (*RecordBatch, error) {
	s, err := schema.ImportSchema(schemaMirror(sch))
	if err != nil {
		discard(in, opts)
		return nil, err
	}
	return importBatch(in, s, opts)
}

func importBatch(in input, s *arrow.Schema, opts []ImportOption) (*RecordBatch, error) {
	if err := checkTop(in); err != nil {
		return nil, err
	}
	columns, err := importColumns(in, s)
	if err != nil {
		discard(in, opts)
		return nil, err
	}
	rows := in.array.Length
	mem, at, err := takeOver(in, columns, opts)
	if err != nil {
		return nil, err
	}
	return newRecordBatch(mem, at, s, rows, columns), nil
}

func importArrayAndSchema(in input, sch *cdata.CArrowSchema, opts []ImportOption) (*Array, error) {
	field, err := schema.Import(schemaMirror(sch))
	if err != nil {
		discard(in, opts)
		return nil, err
	}
	return importArray(in, field, opts)
}

func importArray(in input, field arrow.Field, opts []ImportOption) (*Array, error) {
	if err := checkTop(in); err != nil {
		return nil, err
	}
	if fielderr.IsNil(field.Type) {
		discard(in, opts)
		return nil, fielderr.Absent(fielderr.OpImport, "type", "a data type")
	}
	root, err := importRoot(in, field.Type)
	if err != nil {
		discard(in, opts)
		return nil, err
	}
	mem, at, err := takeOver(in, root, opts)
	if err != nil {
		return nil, err
	}
	return newArray(mem, at, field, root[0]), nil
}

// importColumns makes the nodes of a record batch's columns. It changes nothing.
func importColumns(in input, s *arrow.Schema) ([]tree.Node, error) {
	if s == nil {
		return nil, fielderr.Invalid(fielderr.OpImport, "schema", "nil", "a schema")
	}
	if err := checkDevice(in.at); err != nil {
		return nil, err
	}
	count, err := countColumns(s)
	if err != nil {
		return nil, err
	}
	root := in.array
	if err := checkBatchRoot(root, s.NumFields()); err != nil {
		return nil, fielderr.Within(in.names.root(0), err)
	}
	nodes := make([]tree.Node, count)
	columns := tree.Take(&nodes, s.NumFields())
	im := importer{nodes: nodes}
	pointers := abi.Slice[uintptr](root.Children, len(columns))
	for i := range columns {
		if err := im.child(&columns[i], pointers[i], s.Field(i).Type, root.Length); err != nil {
			return nil, fielderr.Within(in.names.column(i), err)
		}
		if columns[i].Length > root.Length {
			columns[i] = columns[i].Slice(0, root.Length)
		}
	}
	return columns, checkEvent(in.at, columns)
}

// countColumns is how many nodes the columns of a batch have.
func countColumns(s *arrow.Schema) (count int, err error) {
	i := 0
	defer func() {
		if err != nil {
			err = fielderr.New(fielderr.OpImport, fmt.Sprintf("schema.field[%d].type", i), nil, nil, err)
		}
	}()
	defer layout.RecoverType(&err)
	for ; i < s.NumFields(); i++ {
		if err := layout.CountNodes(s.Field(i).Type, 1, &count); err != nil {
			return 0, err
		}
	}
	return count, nil
}

// countArray is how many nodes an array of the type has.
func countArray(dt arrow.DataType) (count int, err error) {
	defer layout.RecoverType(&err)
	err = layout.CountNodes(dt, 0, &count)
	return count, err
}

func importRoot(in input, dt arrow.DataType) ([]tree.Node, error) {
	if err := checkDevice(in.at); err != nil {
		return nil, err
	}
	count, err := countArray(dt)
	if err != nil {
		return nil, fielderr.New(fielderr.OpImport, "schema.type", nil, nil, err)
	}
	nodes := make([]tree.Node, count)
	root := tree.Take(&nodes, 1)
	im := importer{nodes: nodes}
	if err := im.node(&root[0], in.array, dt); err != nil {
		return nil, fielderr.Within(in.names.root(0), err)
	}
	return root, checkEvent(in.at, root)
}

// importer makes nodes of C structs, guided by the type: a struct is read only
// where the type demands one, so that no cycle among structs is followed.
type importer struct {
	nodes []tree.Node // not yet used
}

// child imports the struct that an entry of ArrowArray.children points to.
func (im *importer) child(n *tree.Node, addr uintptr, dt arrow.DataType, least int64) error {
	if addr == 0 || addr%sizeofPointer != 0 {
		return fielderr.New(fielderr.OpImport, "pointer", fielderr.Hex(addr), "the address of a struct", arrow.ErrInvalid)
	}
	a := abi.At[abi.ArrowArray](addr)
	if a.Release == 0 {
		return fielderr.New(fielderr.OpImport, "release", "NULL", nil, ErrReleased)
	}
	if err := im.node(n, a, dt); err != nil {
		return err
	}
	if n.Length < least {
		return fielderr.Invalid(fielderr.OpImport, "length", n.Length, fmt.Sprintf("at least %d", least))
	}
	return nil
}

func (im *importer) node(n *tree.Node, a *abi.ArrowArray, dt arrow.DataType) error {
	st, l := layout.Of(dt)
	if err := checkCounts(a, st, l); err != nil {
		return err
	}
	n.Type, n.Layout, n.Length, n.Offset = dt, l, a.Length, a.Offset
	n.DropEmptyOffset()
	if l.Kind != layout.Null {
		n.Buffers = abi.Slice[uintptr](a.Buffers, int(a.NBuffers))
	}
	n.Nulls = tree.KnownNulls(l, a.Length, a.NullCount, bitmapOf(l, n.Buffers))
	if err := checkBuffers(n, a.NullCount, st, l); err != nil {
		return err
	}
	return im.children(n, a, st)
}

func (im *importer) children(n *tree.Node, a *abi.ArrowArray, st arrow.DataType) error {
	if n.Layout.Kind == layout.Dictionary {
		if a.Dictionary == 0 {
			return fielderr.Invalid(fielderr.OpImport, "dictionary", "NULL", fmt.Sprintf("a struct for %s", fielderr.Describe(st)))
		}
		if err := checkChildren(a, 0, st); err != nil {
			return err
		}
		n.Children = tree.Take(&im.nodes, 1)
		return fielderr.Within("dictionary", im.child(&n.Children[0], a.Dictionary, layout.ChildType(st, 0), 0))
	}
	if a.Dictionary != 0 {
		return fielderr.Invalid(fielderr.OpImport, "dictionary", fielderr.Hex(a.Dictionary), fmt.Sprintf("NULL for %s", fielderr.Describe(st)))
	}
	count := n.Layout.ChildCount(st)
	if err := checkChildren(a, count, st); err != nil || count == 0 {
		return err
	}
	n.Children = tree.Take(&im.nodes, count)
	least, ok := layout.ChildLength(st, a.Offset+a.Length)
	if !ok {
		return fielderr.Invalid(fielderr.OpImport, "length", n.Length, fmt.Sprintf("fewer elements than int64 can count the values of, for %s", fielderr.Describe(st)))
	}
	for i, addr := range abi.Slice[uintptr](a.Children, count) {
		if err := im.child(&n.Children[i], addr, layout.ChildType(st, i), least); err != nil {
			return fielderr.Within(fielderr.Child(i), err)
		}
	}
	if n.Layout.Kind == layout.RunEnds {
		return checkRuns(fielderr.OpImport, n)
	}
	return nil
}

// takeOver makes the memory ours, and does what the options ask for. Unless it
// returns an owner, it releases the memory.
func takeOver(in input, nodes []tree.Node, opts []ImportOption) (*tree.Owner, tree.Location, error) {
	at := placeOf(in)
	mem := tree.Adopt(in.array)
	if at.ID.Type.CPUAccessible() {
		mem.ReplaceNulls(nodes)
	}
	if len(opts) > 0 {
		var err error
		if at, err = applyImportOptions(mem, at, nodes, in.names, opts); err != nil {
			return nil, at, err
		}
	}
	return mem, at, nil
}

// applyImportOptions returns where the memory lives. Unless it succeeds, it releases
// mem; even if an option or code of a backend panics.
func applyImportOptions(mem *tree.Owner, at tree.Location, nodes []tree.Node, names *structNames, opts []ImportOption) (_ tree.Location, err error) {
	done := false
	defer func() {
		if !done {
			mem.Release()
		}
	}()
	var o importOptions
	for _, opt := range opts {
		apply(&o, []ImportOption{opt})
		mem.ReleaseWith = o.releaseWith // the next option may panic
	}
	if o.err != nil {
		return at, o.err
	}
	if o.dev != nil {
		if at.Dev, err = o.deviceFor(at.ID, names); err != nil {
			return at, err
		}
	}
	if err := o.awaitBeforeRelease(mem, at); err != nil {
		return at, err
	}
	if at, err = o.assumeHostReadable(mem, at, nodes); err != nil {
		return at, err
	}
	done = true
	return at, nil
}
